// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"testing"
)

var draw = flag.Bool("draw", false, "write the icons anew")

// stroke says whether a point is white, in the 64 units of icon.svg. The drawing is smaller than there: what a phone cuts an icon to
// is at least the circle in the middle 80% (Web App Manifest, "maskable").
func stroke(x, y float64) bool {
	x, y = 32+(x-32)/.78, 32+(y-32)/.78
	box := func(x0, y0, x1, y1 float64) bool { return x >= x0 && x <= x1 && y >= y0 && y <= y1 }
	return box(18, 16, 22, 52) || box(42, 16, 46, 52) || box(18, 16, 46, 20) || box(14, 50, 50, 54) || math.Hypot(x-38, y-36) <= 3
}

// icon draws n times n pixels, each from 8 times 8 points.
func icon(n int) *image.Paletted {
	var shades color.Palette
	for i := range 16 {
		mix := func(from float64) uint8 { return uint8(math.Round(from + (255-from)*float64(i)/15)) }
		shades = append(shades, color.RGBA{mix(0x1f), mix(0x4e), mix(0x5f), 255})
	}
	img := image.NewPaletted(image.Rect(0, 0, n, n), shades)
	unit := 64 / float64(n)
	for i := range n * n {
		hits := 0
		for j := range 64 {
			if stroke((float64(i%n)+(float64(j%8)+.5)/8)*unit, (float64(i/n)+(float64(j/8)+.5)/8)*unit) {
				hits++
			}
		}
		img.Pix[i] = uint8(math.Round(float64(hits) * 15 / 64))
	}
	return img
}

func TestTheIconsAreTheDrawingAndTheManifestsSizes(t *testing.T) {
	for _, n := range []int{192, 512} {
		name := fmt.Sprintf("static/icon-%d.png", n)
		want := icon(n)
		if *draw {
			var b bytes.Buffer
			if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&b, want); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := png.Decode(bytes.NewReader(b))
		if err != nil || got.Bounds() != want.Bounds() {
			t.Fatalf("%s: %v", name, err)
		}
		for i := range n * n {
			if x, y := i%n, i/n; got.At(x, y) != want.At(x, y) {
				t.Fatalf("%s is another drawing at %d,%d: go test ./page -draw", name, x, y)
			}
		}
	}
	var m struct {
		Icons []struct{ Src, Sizes, Type, Purpose string }
	}
	if err := json.Unmarshal(files(t).all["/manifest.webmanifest"].body, &m); err != nil || len(m.Icons) != 3 {
		t.Fatalf("%+v, %v", m, err)
	}
	for _, i := range m.Icons[1:] {
		if f, ok := files(t).all[i.Src]; !ok || f.media != i.Type || i.Src != "/icon-"+i.Sizes[:3]+".png" {
			t.Errorf("%+v", i)
		}
	}
}
