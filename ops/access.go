package ops

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// This file decides about the access to the page.

// loopbackUser is the name of every person on a page without Auth.
const loopbackUser = "loopback"

var errNobody = errors.New("the auth hook gave no name")

// admit returns the name of the person.
func (h *Handler) admit(r *http.Request) (who string, err error) {
	if h.cfg.Loopback {
		if err := fromLoopback(r); err != nil {
			return "", err
		}
		who = loopbackUser
	}
	if h.cfg.Auth == nil {
		return who, nil
	}
	if who, err = h.cfg.Auth(r); err == nil && who == "" {
		err = errNobody
	}
	return who, err
}

// deny answers a refused person. The error of the hook goes to the log of the program only.
func (h *Handler) deny(w http.ResponseWriter, r *http.Request, err error) {
	if h.cfg.Denied != nil {
		h.cfg.Denied(w, r, err)
		return
	}
	text := "This page is not for you, or you are not signed in."
	if h.cfg.Loopback && h.cfg.Auth == nil { // the person at this machine must learn why
		text = "This page is served to this machine only: " + err.Error() + "."
	}
	http.Error(w, text, http.StatusForbidden)
}

// proxyHeaders are set by proxies. A request with one of them came through a proxy.
var proxyHeaders = []string{
	"Forwarded", "Via", "X-Real-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "True-Client-Ip",
	"Cf-Connecting-Ip", "Fastly-Client-Ip",
	"X-Original-Host", "X-Original-Url", "X-Rewrite-Url", "X-Envoy-External-Address",
	"Fly-Client-Ip",
}

// fromLoopback reports why a request did not come directly from a browser on this machine.
func fromLoopback(r *http.Request) error {
	if !isLoopback(r.RemoteAddr) {
		return errors.New("the request comes from another address")
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok || !isLoopback(local.String()) {
		return errors.New(
			"the server listens on more than the loopback interface, and the request came to another address",
		)
	}
	if !loopbackName(r.Host) { // a foreign name that resolves to this host
		return errors.New("the Host header names no loopback address")
	}
	if !r.ProtoAtLeast(1, 1) { // the version of simple proxies
		return errors.New("the request is of HTTP/1.0, as from a proxy")
	}
	for name := range r.Header {
		if strings.HasPrefix(name, "X-Forwarded") {
			return fmt.Errorf("the request has come through a proxy (%s)", name)
		}
	}
	for _, name := range proxyHeaders {
		if len(r.Header.Values(name)) > 0 {
			return fmt.Errorf("the request has come through a proxy (%s)", name)
		}
	}
	return nil
}

func isLoopback(address string) bool {
	at, err := netip.ParseAddrPort(address)
	return err == nil && at.Addr().Unmap().IsLoopback()
}

// loopbackName reports whether a Host header is localhost or a loopback address. A port is allowed.
func loopbackName(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(name, "["), "]"))
	return err == nil && a.Unmap().IsLoopback()
}

// policy limits browsers to the page's own style sheet, script and icon.
const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; " +
	"frame-ancestors 'none'; base-uri 'none'"

// secure sets the headers of every answer, the refusals too.
func secure(h http.Header) {
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Robots-Tag", "noindex")
}
