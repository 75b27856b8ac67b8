package kafkaauth

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"strings"
	"time"
)

// jwtExpiry returns the end of a JSON Web Token, or the zero time if the text is no such token or
// has no end. The signature is not checked: the broker does that.
func jwtExpiry(token string) time.Time {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return time.Time{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(parts[1], "="))
	if err != nil {
		return time.Time{}
	}
	var claims struct {
		Expires float64 `json:"exp"`
	}
	if json.Unmarshal(payload, &claims) != nil || claims.Expires < 1 ||
		claims.Expires > math.MaxInt32*1e3 {
		return time.Time{}
	}
	return time.Unix(int64(claims.Expires), 0)
}
