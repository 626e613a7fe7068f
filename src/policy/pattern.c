/* See pattern.h. Called while a configuration is read; what is wrong is said in the caller's fault. */
#include "policy/pattern.h"

#include <string.h>

#define HOST_MAX 253

static bool begins(const char *s, size_t n, const char *with)
{
	size_t m = strlen(with);
	return n >= m && memcmp(s, with, m) == 0;
}

static bool wrong(struct fault *fault, const char *what, const char *accepted)
{
	text_str(&fault->what, what);
	text_str(&fault->accepted, accepted);
	return false;
}

/* 1 to 65535, digits only. */
static bool read_port(const char *s, size_t n, uint16_t *port)
{
	uint32_t v = 0;
	if (n == 0 || n > 5)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (s[i] < '0' || s[i] > '9')
			return false;
		v = v * 10 + (uint32_t)(s[i] - '0');
	}
	*port = (uint16_t)v;
	return v >= 1 && v <= 65535;
}

/* What follows the colon: "443" or "8000-8099". */
static bool read_ports(struct pattern *p, const char *s, size_t n, struct fault *fault)
{
	const char *dash = memchr(s, '-', n);
	size_t first = dash ? (size_t)(dash - s) : n;
	if (!read_port(s, first, &p->low) || (dash && !read_port(dash + 1, n - first - 1, &p->high)))
		return wrong(
			fault, "match: not a port", "1 to 65535, a range such as 8000-8099, or none for every port");
	if (!dash)
		p->high = p->low;
	return p->low <= p->high ||
	       wrong(fault, "match: a range of ports that ends before it begins", "the lower one first");
}

static const char *keep_lower(struct config *c, const char *s, size_t n)
{
	char host[HOST_MAX + 1];
	for (size_t i = 0; i < n; i++)
		host[i] = (char)(s[i] >= 'A' && s[i] <= 'Z' ? s[i] - 'A' + 'a' : s[i]);
	return config_keep(c, host, n);
}

/* Letters, digits, '-', '_', and bytes of other alphabets as the app writes them; labels are not empty. */
static bool is_host(const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		char c = s[i];
		bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
				 c == '-' || c == '_' || (unsigned char)c >= 0x80;
		if (!is_letter && (c != '.' || i == 0 || s[i - 1] == '.'))
			return false;
	}
	return n > 0;
}

/* Digits and dots alone, or a last label of digits: no host has such a name. */
static bool looks_numeric(const char *s, size_t n)
{
	size_t i = n;
	while (i > 0 && s[i - 1] >= '0' && s[i - 1] <= '9')
		i--;
	return i < n && (i == 0 || s[i - 1] == '.');
}

static bool read_host(struct pattern *p, struct config *c, const char *s, size_t n, struct fault *fault)
{
	p->kind = PATTERN_HOST;
	if (begins(s, n, "*.")) {
		p->kind = PATTERN_SUFFIX;
		s++;
		n--;
	}
	if (n > 1 && s[n - 1] == '.')
		n--;
	const char *bare = p->kind == PATTERN_SUFFIX ? s + 1 : s;
	size_t bare_len = n - (size_t)(bare - s);
	if (memchr(bare, '*', bare_len))
		return wrong(
			fault, "match: a star stands alone or before a dot", "*, *:443, *.internal or *.internal:443");
	if (bare_len > HOST_MAX - 1)
		return wrong(fault, "match: too long for a host name", "at most 252 bytes");
	if (!is_host(bare, bare_len))
		return wrong(fault, "match: neither a host name nor an address",
			"host, host:443, *.internal, 10.0.0.0/8:5432, [fd00::]/8:443, unix:/path, exe:NAME or *");
	if (looks_numeric(bare, bare_len))
		return wrong(fault, "match: not an IPv4 address", "four numbers up to 255, such as 10.0.0.1");
	p->host = keep_lower(c, s, n);
	p->host_len = (uint16_t)n;
	return true;
}

/* The first bits of 128 set. */
static void make_mask(uint8_t mask[16], unsigned bits)
{
	for (unsigned i = 0; i < 16; i++) {
		unsigned left = bits > 8 * i ? bits - 8 * i : 0;
		mask[i] = (uint8_t)(left >= 8 ? 0xff : 0xff00u >> left);
	}
}

/* s: digits after the slash, m of them; null: none, the address alone. */
static bool read_prefix(struct pattern *p, const struct addr *a, const char *s, size_t m, struct fault *fault)
{
	unsigned most = p->is_v4 ? 32 : 128, bits = 0;
	for (size_t i = 0; i < m && i < 4; i++)
		bits = s[i] >= '0' && s[i] <= '9' ? bits * 10 + (unsigned)(s[i] - '0') : 1000;
	if (s && (m == 0 || m > 3 || bits > most))
		return wrong(fault, "match: not a prefix length", p->is_v4 ? "/0 to /32" : "/0 to /128");
	if (!s)
		bits = most;

	struct addr net = *a;
	uint8_t mask[16];
	make_mask(mask, p->is_v4 ? bits + 96 : bits);
	for (int i = 0; i < 16; i++)
		net.ip[i] &= mask[i];
	memcpy(p->net, net.ip, sizeof p->net);
	memcpy(p->mask, mask, sizeof p->mask);
	if (!addr_same_host(&net, a)) {
		addr_host_text(&fault->suggestion, &net);
		text_fmt(&fault->suggestion, "/%u", bits);
		return wrong(fault, "match: the address has bits beyond its prefix", "the first address of the net");
	}
	return true;
}

/* ADDRESS, ADDRESS/BITS; true with *is_net false: it is no address at all. */
static bool read_net(struct pattern *p, const char *s, size_t n, bool *is_net, struct fault *fault)
{
	char literal[64];
	struct addr a;
	const char *slash = memchr(s, '/', n);
	size_t len = slash ? (size_t)(slash - s) : n;

	*is_net = false;
	if (len == 0 || len >= sizeof literal)
		return true;
	memcpy(literal, s, len);
	literal[len] = '\0';
	if (!addr_from_literal(&a, literal))
		return true;
	*is_net = true;
	p->kind = PATTERN_NET;
	p->is_v4 = addr_is_v4(&a);
	p->scope = a.scope;
	return read_prefix(p, &a, slash ? slash + 1 : NULL, slash ? n - len - 1 : 0, fault);
}

/* "[fd00::1]:443", "[fd00::]/8:443", "[fd00::/8]:443": rewritten as address/bits. */
static bool read_bracketed(struct pattern *p, const char *s, size_t n, struct fault *fault)
{
	static const char accepted[] = "[fd00::1], [fd00::1]:443, [fd00::]/8 or [fd00::]/8:443";
	const char *close = memchr(s, ']', n);
	if (!close)
		return wrong(fault, "match: a bracket is not closed", accepted);

	char net[80] = "";
	struct text t = TEXT_ON(net);
	text_bytes(&t, s + 1, (size_t)(close - s) - 1);
	const char *rest = close + 1;
	size_t left = n - (size_t)(rest - s);
	if (left > 0 && rest[0] == '/') {
		const char *colon = memchr(rest, ':', left);
		size_t take = colon ? (size_t)(colon - rest) : left;
		text_bytes(&t, rest, take);
		rest += take;
		left -= take;
	}
	bool is_net = false, is_right = !t.is_cut && read_net(p, net, t.len, &is_net, fault);
	if (!is_right && is_net)
		return false;
	if (!is_net || p->is_v4)
		return wrong(fault, "match: not an IPv6 address", accepted);
	if (left == 0)
		return true;
	return rest[0] == ':' ? read_ports(p, rest + 1, left - 1, fault)
			      : wrong(fault, "match: text after the bracket", accepted);
}

/* HOST, HOST:PORTS, NET, NET:PORTS, `*`, `*:PORTS`. */
static bool read_place(struct pattern *p, struct config *c, const char *s, size_t n, struct fault *fault)
{
	bool is_net;
	if (s[0] == '[')
		return read_bracketed(p, s, n, fault);

	const char *colon = memchr(s, ':', n);
	size_t len = colon ? (size_t)(colon - s) : n;
	if (colon && memchr(colon + 1, ':', n - len - 1)) {
		/* IPv6 without brackets: all colons are its own. */
		if (!read_net(p, s, n, &is_net, fault))
			return false;
		return is_net ||
		       wrong(fault, "match: not an IPv6 address", "fd00::1, fd00::/8, and with a port [fd00::1]:443");
	}
	if (colon && !read_ports(p, colon + 1, n - len - 1, fault))
		return false;
	if (len == 0)
		return wrong(fault, "match: no host before the port", "host:443, or *:443 for every host");
	if (len == 1 && s[0] == '*') {
		p->kind = PATTERN_ANY;
		return true;
	}
	if (!read_net(p, s, len, &is_net, fault))
		return false;
	return is_net || read_host(p, c, s, len, fault);
}

/* sni:HOST, sni:*.SUFFIX, with ports as a host has them. */
static bool read_sni(struct pattern *p, struct config *c, const char *s, size_t n, struct fault *fault)
{
	if (n == 0 || !read_place(p, c, s, n, fault))
		return n > 0 ? false : wrong(fault, "match: sni: needs a name", "sni:api.internal or sni:*.internal");
	if (p->kind != PATTERN_HOST && p->kind != PATTERN_SUFFIX)
		return wrong(
			fault, "match: sni: takes a name", "sni:api.internal, sni:*.internal or sni:api.internal:443");
	p->kind = PATTERN_SNI;
	return true;
}

bool pattern_refuse_said(struct fault *fault)
{
	return wrong(fault, "match: sni: is for destinations alone", "host:port, a net or exe:NAME");
}

static bool read_unix(struct pattern *p, struct config *c, const char *path, size_t n, struct fault *fault)
{
	p->kind = PATTERN_UNIX;
	if (n < 2 || n > sizeof((struct addr *)0)->path || (path[0] != '/' && path[0] != '@'))
		return wrong(fault, "match: not the path of a socket",
			"unix:/path, or unix:@name for an abstract one, at most 108 bytes");
	p->host = config_keep(c, path, n);
	p->host_len = (uint16_t)n;
	return true;
}

static bool read_exe(struct pattern *p, struct config *c, const char *name, size_t n, struct fault *fault)
{
	p->kind = PATTERN_EXE;
	if (n == 0 || n > 255)
		return wrong(fault, "match: exe: needs a name",
			"the base name of an executable, such as exe:curl or exe:python*");
	const char *slash = memrchr(name, '/', n);
	if (slash) {
		text_str(&fault->suggestion, "exe:");
		text_bytes(&fault->suggestion, slash + 1, n - (size_t)(slash + 1 - name));
		return wrong(fault, "match: exe: takes a base name, no path", "exe:curl");
	}
	p->host = config_keep(c, name, n);
	p->host_len = (uint16_t)n;
	return true;
}

/* "https://pay.internal:443/v1" -> "pay.internal:443". */
static bool refuse_url(const char *s, size_t n, const char *slashes, struct fault *fault)
{
	const char *host = slashes + 3;
	size_t len = n - (size_t)(host - s);
	const char *end = memchr(host, '/', len);
	text_bytes(&fault->suggestion, host, end ? (size_t)(end - host) : len);
	if (begins(s, n, "https:") && !memchr(host, ':', end ? (size_t)(end - host) : len))
		text_str(&fault->suggestion, ":443");
	return wrong(fault, "match: a URL is no pattern", "the host alone, or host:port");
}

/* "exec:curl", "unx:/run/x": a slip in the kind. */
static void suggest_kind(const char *s, size_t n, struct fault *fault)
{
	static const char *const kinds[] = {"unix", "exe", "sni", NULL};
	const char *colon = memchr(s, ':', n);
	const char *kind = colon ? complain_nearest(s, (size_t)(colon - s), kinds) : NULL;
	if (!kind || fault->suggestion.len > 0 || (begins(s, n, kind) && s[strlen(kind)] == ':'))
		return;
	text_str(&fault->suggestion, kind);
	text_bytes(&fault->suggestion, colon, n - (size_t)(colon - s));
}

bool pattern_read(struct pattern *p, struct config *c, const char *s, size_t n, struct fault *fault)
{
	*p = (struct pattern){.kind = PATTERN_ANY, .low = 0, .high = 65535};
	p->text = config_keep(c, s, n);
	bool is_read;
	const char *slashes = memmem(s, n, "://", 3);
	if (n == 0)
		is_read = wrong(fault, "match: an empty pattern", "one pattern between two commas");
	else if (slashes)
		is_read = refuse_url(s, n, slashes, fault);
	else if (begins(s, n, "unix:"))
		is_read = read_unix(p, c, s + 5, n - 5, fault);
	else if (begins(s, n, "exe:"))
		is_read = read_exe(p, c, s + 4, n - 4, fault);
	else if (begins(s, n, "sni:"))
		is_read = read_sni(p, c, s + 4, n - 4, fault);
	else if (begins(s, n, "udp:"))
		return wrong(fault, "match: this version has no udp: patterns",
			"host:port, *.suffix:port, a net, unix:/path, sni:host, exe:NAME or *");
	else
		is_read = read_place(p, c, s, n, fault);
	if (!is_read)
		suggest_kind(s, n, fault);
	if (is_read && (!p->text || (p->kind != PATTERN_ANY && p->kind != PATTERN_NET && !p->host)))
		return wrong(fault, "match: no memory for this pattern", "fewer or shorter ones");
	return is_read;
}
