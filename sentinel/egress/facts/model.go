// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/doorward/doorward/internal/wire"
)

// A request to a model's provider is one JSON object, whose shape differs by provider: Anthropic's Messages, OpenAI's Chat
// Completions and Responses, Google's generateContent, OpenRouter's. All are read by one list of keys, since a host may take
// more than one shape. Whatever may have the provider reach further than the model (a search, a fetch, a program, a server
// of somebody's, an image by its address) is an exit that no part of this machine sees, and is counted as a tool of its
// by that name; so is every key with an object or a list that is not known to be harmless.

// content are keys whose blocks are looked through for addresses that the provider would fetch.
var content = []string{"messages", "system", "input", "instructions", "contents", "systemInstruction", "system_instruction"}

// counted are keys that hold numbers of tokens, manifold those that multiply an answer.
var (
	counted  = []string{"max_tokens", "max_completion_tokens", "max_output_tokens", "max_tokens_to_sample"}
	manifold = []string{"n", "best_of"}
)

// exits are keys that are a tool of the provider unless they are null or empty, with the tool's name here.
var exits = map[string]string{
	"mcp_servers": "mcp_servers", "container": "container", "web_search_options": "web_search", "models": "models",
	"preset": "preset", "cachedContent": "cachedContent", "cached_content": "cachedContent",
}

// searching are parts of the names of models that look things up by themselves, whatever tools a request has: OpenAI's
// gpt-4o-search-preview, gpt-5-search-api and o3-deep-research, Perplexity's sonar.
var searching = []string{"-search-", "deep-research", "/sonar"}

// harmless are keys with objects or lists that reach nothing.
var harmless = []string{
	"metadata", "thinking", "tool_choice", "stop_sequences", "output_config", "output_format", "context_management", "cache_control",
	"response_format", "stop", "logit_bias", "stream_options", "functions", "function_call", "prediction", "audio", "modalities",
	"reasoning", "text", "include", "safetySettings", "safety_settings", "toolConfig", "tool_config", "labels", "provider",
	"transforms", "usage", "betas", "anthropic_beta", "client_metadata",
}

// special are the keys that readModel itself looks into.
var special = []string{"model", "tools", "plugins", "prompt", "generationConfig", "generation_config"}

// client are the types of tools that the client runs; those with a version begin like dated.
var (
	client = []string{"function", "custom", "computer", "computer_use_preview", "local_shell", "apply_patch"}
	dated  = []string{"bash_", "text_editor_", "computer_", "memory_"}
)

// untyped are the keys of a tool that has no type: a client's at Anthropic, declarations of functions at Google.
var untyped = []string{"name", "description", "input_schema", "cache_control", "strict", "eager_input_streaming", "defer_loading",
	"allowed_callers", "input_examples", "functionDeclarations", "function_declarations"}

// google are Google's own tools, by the keys that they are asked for with.
var google = []string{"googleSearch", "google_search", "googleSearchRetrieval", "google_search_retrieval", "urlContext",
	"url_context", "codeExecution", "code_execution", "googleMaps", "google_maps", "fileSearch", "file_search",
	"enterpriseWebSearch", "enterprise_web_search", "retrieval", "mcpServers", "mcp_servers", "computerUse", "computer_use"}

// maxTools bounds the list of a ModelUse.
const maxTools = 128

// model is what is read so far.
type model struct {
	d    *jsontext.Decoder
	use  wire.ModelUse
	most int64
	many int64
}

// readModel reads a body, nil where it is none that can be read. Model is empty where the body has none, as at Google.
func readModel(body []byte) *wire.ModelUse {
	m := &model{d: decoder(body), many: 1}
	known := slices.Concat(content, counted, manifold, special)
	for k := range exits {
		known = append(known, k)
	}
	seen := map[string]bool{}
	ok := object(m.d, known, func(key string) bool {
		if alike := snake(key); seen[alike] {
			return false // generationConfig and generation_config: which counts is not known
		} else if slices.Contains(known, key) {
			seen[alike] = true
		}
		return m.key(key)
	})
	if !ok || !whole(m.d) || len(m.use.Tools) > maxTools || m.most > math.MaxInt64/m.many {
		return nil
	}
	m.use.Most = m.most * m.many
	if strings.HasSuffix(m.use.Model, ":online") { // OpenRouter's way to say web search
		m.tool(":online")
	}
	if slices.ContainsFunc(searching, func(part string) bool { return strings.Contains(m.use.Model, part) }) {
		m.tool("web_search")
	}
	if strings.Contains(m.use.Model, "@preset/") {
		m.tool("preset")
	}
	slices.Sort(m.use.Tools)
	m.use.Tools = slices.Compact(m.use.Tools)
	return &m.use
}

func snake(s string) string {
	var b strings.Builder
	for _, r := range s {
		if 'A' <= r && r <= 'Z' {
			b.WriteByte('_')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

func (m *model) tool(name string) {
	if len(name) > maxName {
		name = name[:maxName]
	}
	if len(m.use.Tools) <= maxTools {
		m.use.Tools = append(m.use.Tools, strings.ToValidUTF8(name, ""))
	}
}

// key reads what belongs to a key of the request.
func (m *model) key(key string) (ok bool) {
	kind := m.d.PeekKind()
	switch {
	case key == "model":
		m.use.Model, ok = text(m.d, false)
		return ok && len(m.use.Model) <= maxName
	case key == "tools":
		return m.null() || list(m.d, m.oneTool)
	case key == "plugins":
		return m.null() || list(m.d, m.plugin)
	case key == "generationConfig" || key == "generation_config":
		seen := map[string]bool{}
		known := []string{"maxOutputTokens", "max_output_tokens", "candidateCount", "candidate_count"}
		return m.null() || object(m.d, known, func(key string) bool {
			if !slices.Contains(known, key) {
				return skip(m.d)
			}
			if seen[snake(key)] {
				return false
			}
			seen[snake(key)] = true
			if strings.HasPrefix(key, "max") {
				return m.tokens()
			}
			return m.times()
		})
	case slices.Contains(counted, key):
		return m.tokens()
	case slices.Contains(manifold, key):
		return m.times()
	case slices.Contains(content, key):
		return m.blocks(0)
	case exits[key] != "":
		empty, ok := m.empty()
		if !empty {
			m.tool(exits[key])
		}
		return ok
	case key == "prompt" && kind == '{': // one that OpenAI keeps, with tools of its own
		m.tool("prompt")
	case key != "prompt" && (kind == '{' || kind == '[') && !slices.Contains(harmless, key):
		m.tool(key)
	}
	return skip(m.d)
}

// null reads a null, if that is what is next.
func (m *model) null() bool {
	if m.d.PeekKind() != 'n' {
		return false
	}
	_, err := m.d.ReadToken()
	return err == nil
}

// empty reads any value, and says whether it holds nothing.
func (m *model) empty() (empty, ok bool) {
	v, err := m.d.ReadValue()
	if err != nil {
		return false, false
	}
	switch s := strings.Join(strings.Fields(string(v)), ""); s {
	case "null", "[]", "{}", `""`, "false":
		return true, true
	}
	return false, true
}

// number reads a whole number of at least 0, as such or, as Google takes it, in quotes; null is none.
func (m *model) number() (n int64, none, ok bool) {
	t, err := m.d.ReadToken()
	if err != nil {
		return 0, false, false
	}
	s := ""
	switch t.Kind() {
	case 'n':
		return 0, true, true
	case '0', '"':
		s = t.String()
	}
	n, err = strconv.ParseInt(s, 10, 64)
	return n, false, err == nil && n >= 0 && strconv.FormatInt(n, 10) == s
}

// tokens reads a bound of an answer; of several the largest counts.
func (m *model) tokens() bool {
	n, _, ok := m.number()
	m.most = max(m.most, n)
	return ok
}

// times reads how many answers there are to be.
func (m *model) times() bool {
	n, none, ok := m.number()
	if !ok || n > 1<<16 {
		return false
	}
	if !none {
		m.many = max(m.many, n)
	}
	return true
}

// oneTool reads one element of tools.
func (m *model) oneTool() bool {
	kind, keys := "", []string(nil)
	ok := object(m.d, append([]string{"type"}, untyped...), func(key string) (ok bool) {
		if key == "type" {
			kind, ok = text(m.d, false)
			return ok && kind != ""
		}
		keys = append(keys, key)
		return len(keys) <= 64 && skip(m.d)
	})
	switch {
	case !ok:
		return false
	case kind != "" && !clientSide(kind):
		m.tool(kind)
		return true
	}
	for _, key := range keys {
		is := func(s string) bool { return strings.EqualFold(s, key) }
		if kind == "" && !slices.Contains(untyped, key) || slices.ContainsFunc(google, is) {
			m.tool(key)
		}
	}
	return true
}

// clientSide says that a tool of that type is run by the client.
func clientSide(kind string) bool {
	if slices.Contains(client, kind) {
		return true
	}
	for _, d := range dated {
		if date, ok := strings.CutPrefix(kind, d); ok && len(date) == 8 && strings.Trim(date, "0123456789") == "" {
			return true
		}
	}
	return false
}

// plugin reads one of OpenRouter's plugins.
func (m *model) plugin() bool {
	id := ""
	ok := object(m.d, []string{"id"}, func(key string) (ok bool) {
		if key == "id" {
			id, ok = text(m.d, true)
			return ok
		}
		return skip(m.d)
	})
	m.tool("plugin:" + id)
	return ok
}

// opaque are keys within blocks of what the model gave a tool or got of it: data, whatever stands in it.
var opaque = []string{"input", "args", "response", "arguments"}

// addresses are keys of blocks whose address the provider fetches, unless it is the data itself.
var addresses = []string{"image_url", "video_url", "file_url", "audio_url", "imageUrl", "fileUrl"}

// blocks looks through what is said to the model for what the provider would fetch.
func (m *model) blocks(depth int) bool {
	switch {
	case depth > maxDepth:
		return false
	case m.d.PeekKind() == '[':
		return list(m.d, func() bool { return m.blocks(depth + 1) })
	case m.d.PeekKind() != '{':
		return skip(m.d)
	}
	kind, url := "", ""
	ok := object(m.d, []string{"type", "url"}, func(key string) (ok bool) {
		value := m.d.PeekKind()
		switch {
		case key == "type" && value == '"':
			kind, ok = text(m.d, false)
			return ok
		case key == "url" && value == '"':
			url, ok = text(m.d, false)
			return ok
		case slices.Contains(addresses, key):
			return m.address(key)
		case (key == "fileData" || key == "file_data") && value == '{':
			return m.googleFile()
		case key == "file_data" && value == '"': // the file itself in base64, as OpenAI takes it, or, with OpenRouter, its address
			s, ok := text(m.d, false)
			if strings.Contains(s, ":") && !isData(s) {
				m.tool(key)
			}
			return ok
		case depth > 0 && slices.Contains(opaque, key):
			return skip(m.d)
		}
		return m.blocks(depth + 1)
	})
	if kind == "url" && url != "" {
		m.tool("url")
	}
	return ok
}

// address reads an address, as such or as an object's url.
func (m *model) address(name string) (ok bool) {
	check := func() bool {
		s, ok := text(m.d, true)
		if s != "" && !isData(s) {
			m.tool(name)
		}
		return ok
	}
	if m.d.PeekKind() != '{' {
		return check()
	}
	return object(m.d, []string{"url"}, func(key string) bool {
		if key == "url" {
			return check()
		}
		return skip(m.d)
	})
}

// isData says that an address is the data itself.
func isData(s string) bool {
	s = strings.TrimSpace(s)
	return len(s) >= len("data:") && strings.EqualFold(s[:len("data:")], "data:")
}

// ownFiles is where Google keeps what was uploaded to it; any other address it fetches.
const ownFiles = "https://generativelanguage.googleapis.com/v1beta/files/"

func (m *model) googleFile() bool {
	return object(m.d, []string{"fileUri", "file_uri"}, func(key string) bool {
		if key != "fileUri" && key != "file_uri" {
			return skip(m.d)
		}
		s, ok := text(m.d, true)
		if id, own := strings.CutPrefix(s, ownFiles); s != "" && (!own || strings.ContainsAny(id, "/?#.")) {
			m.tool("fileData")
		}
		return ok
	})
}

// modelOfPath takes the model from the path, where that names one (models/NAME:generateContent); the body must not name
// another. It is false where there is none at all.
func modelOfPath(path string, u *wire.ModelUse) bool {
	for _, folder := range []string{"/models/", "/tunedModels/"} {
		i := strings.LastIndex(path, folder)
		if i < 0 {
			continue
		}
		segment := path[i+len(folder):]
		if name, _, ok := strings.Cut(segment, ":"); ok && !strings.ContainsAny(segment, "/%") {
			if u.Model != "" && strings.TrimPrefix(u.Model, strings.TrimPrefix(folder, "/")) != name {
				return false
			}
			u.Model = name
		}
	}
	if u.Most == 0 && (strings.HasSuffix(path, "/count_tokens") || strings.HasSuffix(path, ":countTokens")) {
		u.Most = 1 // the answer is a number, and the request cannot bound it
	}
	return u.Model != ""
}
