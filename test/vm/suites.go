// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// suite is one test binary in a machine that is fresh for it.
type suite struct {
	name string // also of its folder of what comes back
	pkg  string // of the tests
	// run and skip choose the tests that are this suite's, as the flags of go test do; empty is all, and none. A test
	// whose name begins with TestFull is left to `make vm-test-full`.
	run, skip string
	// without are tests that can mean nothing in the machine, each with the reason; the last lines of a run say them.
	without map[string]string
	// smoke are those of them that `make vm-test` runs; empty is all.
	smoke string
	// full keeps the whole suite to `make vm-test-full`.
	full bool
	// installed has the package and the users of the tests in place before the tests begin; others do that themselves.
	installed bool
	// covers has the daemons say what of them ran, where that is asked for: not where the tests look at the units themselves.
	covers bool
	env    []string // of the tests, NAME=VALUE
	base   string   // what is booted, one of recipes; empty is Debian 13
	kernel string   // what the kernel's command line has besides
	// boots above 1 keep the disk, and boot the machine again when it was reset before the tests ended, up to so many
	// times. The tests run from their beginning each time; DOORWARD_BOOT counts from 1. To them a reset (as by
	// /proc/sysrq-trigger) is a cut of the power: what was not synced is lost.
	boots int
	// bring puts on the second disk what its tests need of this host's besides; an error that is errSkipped leaves
	// the suite out, and the last lines of a run say so.
	bring func(ctx context.Context, cache, tree string) error
}

// callers are the tests of who is taken for whom, of what is reached by whom, and of what systemd and the kernel may refuse:
// half of the time of test/vm/inside.
const callers = "^Test(Full)?(SD0|SO0|ACaller|ADescriptor|ANameCounts|CellsWork|ATakenOver|RootOfTheCell|EachWall)"

// suites are all of them, in the order that they begin in, as many at once as there are processors: the longest first.
// Each costs a boot, about a minute.
var suites = []suite{
	scenarios,
	newer(scenarios),
	{name: "callers", pkg: "./test/vm/inside", run: callers},
	{name: "inside", pkg: "./test/vm/inside", skip: "^TestFull(PowerCut|KernelWithoutBPF|KernelThatSaysTheCgroup)$|" + callers},
	{name: "power", pkg: "./test/vm/inside", run: "^TestFullPowerCut$", full: true, boots: 3},
	{name: "nobpf", pkg: "./test/vm/inside", run: "^TestFullKernelWithoutBPF$", full: true, env: []string{"DOORWARD_NO_BPF=yes"},
		kernel: "lsm=landlock,lockdown,yama,integrity,apparmor"},
	{name: "debian12", pkg: "./test/vm/old", full: true, base: "bookworm"},
	{name: "firsthour", pkg: "./test/vm/firsthour", full: true, bring: takeAgent},
	newer(suite{name: "callers", pkg: "./test/vm/inside",
		run: "^Test(FullKernelThatSaysTheCgroup|SO0|ACaller|ADescriptor|ANameCounts|CellsWork)"}),
}

const noBrowser = "the machine has no browser; the host ground does"
const noSites = "the world of scenarios has no site for a cell of the machine yet; the host ground does"

var scenarios = suite{name: "scenario", pkg: "./test/scenario", installed: true, covers: true,
	smoke: "^TestTheWholePath$",
	// Fewer kills and less load than on the host: its processor is not emulated.
	env: []string{"DOORWARD_GROUND=systemd", "DOORWARD_PROGRAMS=/bench", "TMPDIR=/srv", "DOORWARD_KILLS=40", "DOORWARD_LOAD=40s"},
	without: map[string]string{
		"TestSilenceIsDenial":                      "it sets a daemon's clock since boot a day ahead, and a unit has no clock of its own",
		"TestAClientOfTheCellReachesAnAllowedSite": noSites, "TestASiteThatAsks": noSites, "TestWhatIsNotAllowedStays": noSites,
		"TestSentinelGoneNothingNewLeaves": noSites, "TestEgressGoneItsNamesStay": noSites, "TestTheSwitchEndsTraffic": noSites,
		"TestEG16_NothingLeavesUnjudged": noSites, "TestADiscordBotInACell": noSites, "TestASurrogateIsWorthNothingElsewhere": noSites,
		"TestEG15_AnAttackersOwnKey": noSites, "TestLK03_ARedirectCarriesNothing": noSites, "TestSW01_GitOverHTTPS": noSites,
		"TestRevokingASurrogateEndsItsTraffic": noSites, "TestKilledUnderLoadOfInterceptedRequests": noSites,
		"TestAHelperHoldsNoCredential": noSites, "TestHT03_ALargePackOfGit": noSites,
		"TestAPersonDecidesInABrowser": noBrowser, "TestTwoBrowsersDecideAtOnce": noBrowser, "TestATakenOverApprovals": noBrowser,
		"TestAScriptThatVerifiesNothingIsLiedTo": noBrowser, "TestAPersonSetsRulesAndLooksBackInABrowser": noBrowser,
	}}

// newer is a suite on a kernel whose pidfds say the cgroup (6.13), so that callers are told apart by that too.
func newer(s suite) suite {
	s.name, s.base, s.full, s.covers = "newer-"+s.name, "backports", true, false
	return s
}

// choose are the suites of a run, and for each what its tests are held to. which and only are the person's choice of
// suites and tests; empty they are none.
func choose(ctx context.Context, root, dir, which, only string, full bool) ([]suite, error) {
	names, err := regexp.Compile(which)
	if err != nil {
		return nil, err
	}
	var out []suite
	for _, s := range suites {
		if !names.MatchString(s.name) {
			continue
		}
		for name := range s.without {
			s.leave("^" + strings.ReplaceAll(name, "/", "$/^") + "$")
		}
		switch {
		case only != "":
			mine, err := s.match(ctx, root, dir, only)
			if err != nil {
				return nil, err
			}
			if len(mine) == 0 {
				continue
			}
			_, sub, _ := strings.Cut(only, "/")
			s.run = strings.TrimSuffix("^("+strings.Join(mine, "|")+")$/"+sub, "/")
		case full, s.full && which != "": // all of it
		case s.full:
			continue
		default:
			if s.smoke != "" {
				s.run = s.smoke
			}
			s.leave("^TestFull")
		}
		out = append(out, s)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no test of a suite matches %q", only)
	}
	return out, nil
}

func (s *suite) leave(pattern string) { s.skip = strings.TrimPrefix(s.skip+"|"+pattern, "|") }

// match are the tests of the suite that the pattern matches; what of it stands behind a slash chooses subtests.
func (s *suite) match(ctx context.Context, root, dir, pattern string) (mine []string, err error) {
	top, _, _ := strings.Cut(pattern, "/")
	binary := filepath.Join(dir, "list.test")
	defer os.Remove(binary)
	if err := build(ctx, root, "test", "-c", "-o", binary, s.pkg); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, binary, "-test.list", top)
	cmd.Env = append(os.Environ(), s.env...)
	b, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("list the tests of %s: %w\n%s", s.pkg, err, b)
	}
	chosen := regexp.MustCompile(s.run)
	// A pattern with a slash is of subtests; of the test itself something is left.
	whole := slices.DeleteFunc(strings.Split(s.skip, "|"), func(p string) bool { return p == "" || strings.Contains(p, "/") })
	theirs := regexp.MustCompile(strings.Join(whole, "|"))
	for name := range strings.Lines(string(b)) {
		name = strings.TrimSpace(name)
		if name != "" && chosen.MatchString(name) && (len(whole) == 0 || !theirs.MatchString(name)) {
			mine = append(mine, name)
		}
	}
	return mine, nil
}

// build runs the go command in the module.
func build(ctx context.Context, root string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if b, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, b)
	}
	return nil
}

// programs are what tests find on the second disk, by name: a machine without Go cannot build them.
var programs = map[string]string{
	"ask":      "./test/world/ask",
	"probe":    "./test/vm/inside/probe",
	"flood":    "./test/attacks/flood",
	"peek":     "./test/attacks/peek",
	"renderer": "./test/attacks/renderer",
	"evil":     "./test/scenario/evil",
}
