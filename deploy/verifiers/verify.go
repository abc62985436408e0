// Package verify checks X-Tool-Signature (envelope-v1) or CL-Signature (bare-v1) over the raw body, before any JSON parser.
// While a secret is replaced there are two v1: either is good.
package verify

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strconv"
	"strings"
)

var seconds = regexp.MustCompile("^[0-9]{1,12}$")

// Verify takes time.Now().Unix() as now, and 300 as tolerance.
func Verify(secret, header string, body []byte, now, tolerance int64) bool {
	found := map[string][]string{}
	for _, part := range strings.Split(header, ",") {
		name, value, _ := strings.Cut(part, "=")
		found[name] = append(found[name], value)
	}
	if secret == "" || len(found["t"]) != 1 || !seconds.MatchString(found["t"][0]) {
		return false
	}
	t, _ := strconv.ParseInt(found["t"][0], 10, 64)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(append([]byte(found["t"][0]+"."), body...))
	expected, good := hex.EncodeToString(mac.Sum(nil)), false
	for _, value := range found["v1"] {
		good = hmac.Equal([]byte(value), []byte(expected)) || good
	}
	return good && t-now <= tolerance && now-t <= tolerance
}
