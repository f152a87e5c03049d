package expr

import (
	"net/netip"
	"net/url"
	"strings"

	"github.com/sluice-etl/sluice/connectors"
)

func init() {
	define(
		function{Function: doc("url_scheme(url string) string|null", "gives the scheme of a URL, or null", `url_scheme("https://a.b/c")`, `"https"`), run1: urlPart(func(u *url.URL) string { return u.Scheme })},
		function{Function: doc("url_host(url string) string|null", "gives the host name of a URL, or null", `url_host("https://a.b:8080/c")`, `"a.b"`), run1: urlPart((*url.URL).Hostname)},
		function{Function: doc("url_port(url string) string|null", "gives the port of a URL as it is written, or null", `url_port("https://a.b:8080/c")`, `"8080"`), run1: urlPart((*url.URL).Port)},
		function{Function: doc("url_path(url string) string|null", "gives the path of a URL without its escapes, or null", `url_path("https://a.b/c%20d?e=f")`, `"/c d"`), run1: urlPart(func(u *url.URL) string { return u.Path })},
		function{Function: doc("url_query(url string, name string) string|null", "gives the first parameter of that name in a URL, or null", `url_query("/c?a=1&b=x+y", "b")`, `"x y"`), run2: urlQuery},
		function{Function: doc("path_base(path string) string", "gives the last part of a path with slashes", `path_base("/a/b.csv")`, `"b.csv"`), run1: pathBase},
		function{Function: doc("path_dir(path string) string", "gives a path with slashes without its last part", `path_dir("/a/b.csv")`, `"/a"`), run1: pathDir},
		function{Function: doc("path_ext(path string) string", "gives the extension of a path with its dot, or empty text", `path_ext("/a/b.csv")`, `".csv"`), run1: pathExt},
		function{Function: doc("is_ip(text string) bool", "tells whether text is an IP address", `is_ip("10.0.0.1")`, `true`), run1: addressTest(netip.Addr.IsValid)},
		function{Function: doc("is_ipv4(text string) bool", "tells whether text is an address of IPv4", `is_ipv4("::1")`, `false`), run1: addressTest(netip.Addr.Is4)},
		function{Function: doc("is_ipv6(text string) bool", "tells whether text is an address of IPv6", `is_ipv6("::1")`, `true`), run1: addressTest(netip.Addr.Is6)},
		function{Function: doc("is_private_ip(text string) bool", "tells whether text is an address for private use (RFC 1918, RFC 4193)", `is_private_ip("192.168.1.1")`, `true`), run1: addressTest(netip.Addr.IsPrivate)},
		function{Function: doc("ip_in_cidr(text string, cidr string) bool", "tells whether text is an IP address in a network", `ip_in_cidr("10.1.2.3", "10.0.0.0/8")`, `true`), build: inNetwork},
	)
}

func urlPart(part func(*url.URL) string) func(*Env, *site, connectors.Value) connectors.Value {
	return func(e *Env, s *site, v connectors.Value) connectors.Value {
		u, err := url.Parse(v.Text())
		if err != nil {
			return connectors.NullValue()
		}
		text := part(u)
		if text == "" {
			return connectors.NullValue()
		}
		return e.keep(s, text)
	}
}

func urlQuery(e *Env, s *site, v, name connectors.Value) connectors.Value {
	text, _, _ := strings.Cut(v.Text(), "#")
	_, query, _ := strings.Cut(text, "?")
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		key, value, _ := strings.Cut(pair, "=")
		if key, err := url.QueryUnescape(key); err != nil || key != name.Text() {
			continue
		}
		value, err := url.QueryUnescape(value)
		if err != nil {
			return connectors.NullValue()
		}
		return e.keep(s, value)
	}
	return connectors.NullValue()
}

func pathBase(_ *Env, _ *site, v connectors.Value) connectors.Value {
	text := strings.TrimRight(v.Text(), "/")
	return connectors.StringValue(text[strings.LastIndexByte(text, '/')+1:])
}

func pathDir(_ *Env, _ *site, v connectors.Value) connectors.Value {
	text := strings.TrimRight(v.Text(), "/")
	i := strings.LastIndexByte(text, '/')
	switch {
	case i > 0:
		return connectors.StringValue(text[:i])
	case strings.HasPrefix(v.Text(), "/"):
		return connectors.StringValue("/")
	}
	return connectors.StringValue("")
}

func pathExt(e *Env, s *site, v connectors.Value) connectors.Value {
	base := pathBase(e, s, v).Text()
	if i := strings.LastIndexByte(base, '.'); i > 0 {
		return connectors.StringValue(base[i:])
	}
	return connectors.StringValue("")
}

// addressTest is false for what is no address.
func addressTest(test func(netip.Addr) bool) func(*Env, *site, connectors.Value) connectors.Value {
	return func(_ *Env, _ *site, v connectors.Value) connectors.Value {
		a, ok := address(v.Text())
		return connectors.BoolValue(ok && test(a))
	}
}

// An address in text has at most this many bytes, with its zone.
const longestAddress = 100

func address(text string) (netip.Addr, bool) {
	// ParseAddr's errors allocate; most of what is no address shows at once.
	if text == "" || len(text) > longestAddress || !strings.ContainsAny(text, ".:") {
		return netip.Addr{}, false
	}
	a, err := netip.ParseAddr(text)
	return a.Unmap(), err == nil
}

// inNetwork compiles ip_in_cidr, whose network is mostly a constant.
func inNetwork(c *compiler, at *site, args []*node) fn {
	f := functions["ip_in_cidr"]
	ip, cidr := checked(f, 0, args[0]), checked(f, 1, args[1])
	network := func(e *Env) (netip.Prefix, bool) {
		v := cidr(e)
		if v.Kind() == failed {
			return netip.Prefix{}, false
		}
		p, err := netip.ParsePrefix(v.Text())
		if err != nil {
			e.fail(args[1].at, KindArgument, args[1].at.name+" is no network such as 10.0.0.0/8")
		}
		return p, err == nil
	}
	if text, ok := args[1].text(); ok {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			c.fault(args[1].at, "this is no network", `write it as in "10.0.0.0/8"`)
			return nil
		}
		network = func(*Env) (netip.Prefix, bool) { return p, true }
	}
	return func(e *Env) connectors.Value {
		v := ip(e)
		if v.Kind() == failed {
			return v
		}
		p, ok := network(e)
		if !ok {
			return failure
		}
		a, ok := address(v.Text())
		return connectors.BoolValue(ok && p.Contains(a))
	}
}
