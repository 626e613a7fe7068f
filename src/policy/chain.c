/* See chain.h. */
#include "policy/chain.h"

#include <errno.h>
#include <string.h>

#include "base/addr.h"
#include "base/clock.h"
#include "base/sys.h"
#include "policy/names.h"
#include "policy/parse.h"
#include "policy/value.h"

static const char accepted_steps[] = "off, or host:port, cache(1h), reply:FILE, spool:DIR and errno:NAME, with commas";

/* The types that a step's argument has, in terms of keys.h. */
static const struct value_row age_row = {
	.name = "fallback: cache", .min = NS_PER_S, .max = (uint64_t)8760 * 3600 * NS_PER_S, .type = VALUE_DURATION};
static const struct value_row errno_row = {.name = "fallback", .initial = "ECONNREFUSED", .type = VALUE_ERRNO};

static bool wrong(struct fault *f, const char *what, const char *accepted)
{
	text_str(&f->what, what);
	text_str(&f->accepted, accepted);
	return false;
}

static bool begins(const char *s, size_t n, const char *with, size_t *len)
{
	*len = strlen(with);
	return n >= *len && memcmp(s, with, *len) == 0;
}

/* 1 to 65535, digits only. */
static bool read_port(const char *s, size_t n, uint16_t *port)
{
	uint32_t v = 0;
	for (size_t i = 0; i < n && i < 6; i++) {
		if (s[i] < '0' || s[i] > '9')
			return false;
		v = v * 10 + (uint32_t)(s[i] - '0');
	}
	*port = (uint16_t)v;
	return n > 0 && n <= 5 && v >= 1 && v <= 65535;
}

static bool is_name(const char *s)
{
	for (size_t i = 0; s[i]; i++) {
		char c = s[i];
		bool is_letter = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
				 (unsigned char)c >= 0x80;
		if (!is_letter && (c != '.' || i == 0 || s[i - 1] == '.'))
			return false;
	}
	/* Digits and dots alone are an address gone wrong. */
	return s[strspn(s, "0123456789.")] != '\0';
}

/* A step of another kind gone wrong, or no step at all. */
static bool refuse_step(const char *s, size_t n, struct fault *f)
{
	static const char *const kinds[] = {"cache", "reply", "spool", "errno", NULL};
	size_t word = 0;
	while (word < n && s[word] >= 'a' && s[word] <= 'z')
		word++;
	const char *near = complain_nearest(s, word, kinds);
	if (near && near == kinds[0]) {
		text_str(&f->suggestion, "cache(1h)");
	} else if (near && word < n && s[word] == ':') {
		text_str(&f->suggestion, near);
		text_bytes(&f->suggestion, s + word, n - word);
	} else if (!memmem(s, n, "://", 3) && n > 0 && !memchr(s, ':', n) && !memchr(s, '/', n) && !memchr(s, '(', n)) {
		return wrong(f, "fallback: a port is due after a host", "host:port, such as backup.internal:8080");
	}
	return wrong(f, "fallback: unknown step", accepted_steps);
}

static bool read_secondary(struct chain_step *step, const char *s, size_t n, struct fault *f)
{
	char host[NAMES_MAX + 4];
	struct addr literal;
	bool is_bracketed = n > 0 && s[0] == '[';
	const char *colon = memrchr(s, ':', n), *close = is_bracketed ? memchr(s, ']', n) : NULL;
	if (is_bracketed ? !close || close + 1 != colon : !colon || memchr(s, ':', (size_t)(colon - s)))
		return is_bracketed || colon ? (colon && !is_bracketed && memmem(s, n, "://", 3)
							       ? wrong(f, "fallback: a URL is no step",
									 "the host and its port, such as "
									 "backup.internal:8080")
							       : wrong(f, "fallback: not an IPv6 address and a port",
									 "[fd00::1]:8080"))
					     : refuse_step(s, n, f);
	size_t len = (size_t)(colon - s);
	if (len == 0 || len >= sizeof host)
		return wrong(f, "fallback: no host before the port", "host:port, such as backup.internal:8080");
	memcpy(host, s, len);
	host[len] = '\0';
	if (!read_port(colon + 1, n - len - 1, &step->port))
		return strspn(colon + 1, "0123456789") + len + 1 >= n ? wrong(f, "fallback: not a port", "1 to 65535")
								      : refuse_step(s, n, f);
	if (addr_from_literal(&literal, host)) {
		if (is_bracketed)
			host[len - 1] = '\0';
		return text_copy(step->host, sizeof step->host, host + is_bracketed);
	}
	if (is_bracketed || !names_clean(step->host, host) || !is_name(step->host))
		return wrong(f, "fallback: neither a host name nor an address",
			"host:port, such as backup.internal:8080, 10.0.0.1:80 or [fd00::1]:80");
	return true;
}

static bool read_number(const struct value_row *row, const char *s, size_t n, uint64_t *number, struct fault *f)
{
	struct value value;
	f->part = s;
	f->part_len = n;
	if (!value_read(row, s, n, &value, f))
		return false;
	*number = value.number;
	return true;
}

/* One step, whole: n bytes without blanks around. f: of a caller that explains; both readers walk the same road. */
static bool read_step(struct chain_step *step, const char *s, size_t n, struct fault *f)
{
	size_t len;
	uint64_t number = 0;
	step->rest = NULL;
	if (begins(s, n, "errno:", &len)) {
		step->source = DEGRADED_ERRNO;
		if (!read_number(&errno_row, s + len, n - len, &number, f))
			return false;
		step->error = (int)number;
		return true;
	}
	if (begins(s, n, "cache(", &len) && s[n - 1] == ')') {
		step->source = DEGRADED_CACHE;
		if (!read_number(&age_row, s + len, n - len - 1, &number, f))
			return false;
		step->age_ns = (int64_t)number;
		return true;
	}
	if (begins(s, n, "reply:", &len) || begins(s, n, "spool:", &len)) {
		step->source = s[0] == 'r' ? DEGRADED_REPLY : DEGRADED_SPOOL;
		step->rest = s + len;
		for (size_t i = len; i < n; i++)
			if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
				return wrong(f, "fallback: a path with control characters", "a path of one line");
		return n > len ||
		       wrong(f, s[0] == 'r' ? "fallback: reply: needs a file" : "fallback: spool: needs a folder",
			       s[0] == 'r' ? "reply:/etc/resil/answer.http" : "spool:/var/spool/resil");
	}
	step->source = DEGRADED_SECONDARY;
	f->part = s;
	f->part_len = n;
	return read_secondary(step, s, n, f);
}

bool chain_next(char **at, struct chain_step *step)
{
	struct fault unused;
	char *s = *at;
	while (*s == ' ' || *s == ',')
		s++;
	if (!*s)
		return false;
	char *end = strchr(s, ',');
	*at = end ? end + 1 : s + strlen(s);
	if (end)
		*end = '\0';
	step->text = s;
	fault_clear(&unused);
	return read_step(step, s, strlen(s), &unused);
}

/* The folder that relative paths are of, with its last slash. False: there is none to be known. */
static bool put_folder(struct text *t, const struct config *c, bool has_file)
{
	const char *slash = strrchr(c->file, '/');
	if (!has_file || !c->file[0])
		return false;
	if (c->file[0] != '/') {
		char cwd[CHAIN_TEXT_MAX + 1];
		if (sys_getcwd(cwd, sizeof cwd) <= 0 || cwd[0] != '/')
			return false;
		text_str(t, cwd);
		text_char(t, '/');
	}
	if (slash)
		text_bytes(t, c->file, (size_t)(slash - c->file) + 1);
	return true;
}

/* The spool makes its folder, not what leads there. */
static bool is_to_be_made(const char *path)
{
	char parent[CHAIN_TEXT_MAX + 1];
	size_t n = strlen(path);
	while (n > 1 && path[n - 1] == '/')
		n--;
	while (n > 1 && path[n - 1] != '/')
		n--;
	text_copy(parent, sizeof parent, path);
	if (n < sizeof parent)
		parent[n] = '\0';
	return sys_access(parent, W_OK | X_OK) == 0;
}

/* For whoever asks whether a configuration is right, here and now. */
static bool is_there(const char *path, bool is_folder, struct fault *f)
{
	struct stat st;
	int err = sys_stat(path, &st);
	if (err == -ENOENT && is_folder && is_to_be_made(path))
		return true;
	if (err != 0)
		return wrong(f, is_folder ? "fallback: no such folder" : "fallback: no such file",
			"an absolute path, or one from the configuration file's folder on");
	if (is_folder ? !S_ISDIR(st.st_mode) : !S_ISREG(st.st_mode))
		return wrong(f, is_folder ? "fallback: not a folder" : "fallback: not a regular file",
			is_folder ? "spool:DIR" : "reply:FILE");
	if (is_folder && (st.st_mode & S_IWOTH) && !(st.st_mode & S_ISVTX))
		return wrong(f, "fallback: anyone may remove what is there", "a folder that others cannot write to");
	if (sys_access(path, is_folder ? W_OK | X_OK : R_OK) != 0)
		return wrong(f, is_folder ? "fallback: nothing can be written there" : "fallback: cannot be read",
			"rights for who runs the program");
	return true;
}

static bool put_step(struct text *t, const struct config *c, const struct chain_step *step, const char *s, size_t n,
	bool has_file, struct fault *f)
{
	if (t->len > 0)
		text_str(t, ", ");
	size_t at = t->len;
	if (step->source == DEGRADED_SECONDARY) {
		size_t len = (size_t)((const char *)memrchr(s, ':', n) - s);
		text_str(t, s[0] == '[' ? "[" : "");
		text_str(t, step->host);
		text_str(t, s[0] == '[' ? "]" : "");
		text_bytes(t, s + len, n - len);
	} else if (step->rest && step->rest[0] != '/') {
		text_bytes(t, s, (size_t)(step->rest - s));
		if (!put_folder(t, c, has_file)) {
			f->part = s;
			f->part_len = n;
			return wrong(
				f, "fallback: a relative path", "one from / on: only a file's are of its own folder");
		}
		text_bytes(t, step->rest, n - (size_t)(step->rest - s));
	} else {
		text_bytes(t, s, n);
	}
	if (!c->looks_at_files || !step->rest || t->is_cut)
		return true;
	f->part = s;
	f->part_len = n;
	return is_there(t->at + at + (step->rest - s), step->source == DEGRADED_SPOOL, f);
}

bool chain_read(struct config *c, const char *s, size_t n, bool has_file, const char **kept, struct fault *fault)
{
	char text[CHAIN_TEXT_MAX + 1] = "";
	struct text t = TEXT_ON(text);
	struct chain_step step;
	unsigned steps = 0;
	bool has_ended = false;

	*kept = NULL;
	if (n == 0 || parse_is(s, n, "off"))
		return true;
	for (const char *at = s, *end = s + n; at <= end; steps++) {
		const char *comma = memchr(at, ',', (size_t)(end - at)), *one = at;
		size_t len = (size_t)((comma ? comma : end) - at);
		at = comma ? comma + 1 : end + 1;
		parse_strip(&one, &len);
		fault->part = len ? one : s;
		fault->part_len = len ? len : n;
		if (len == 0)
			return wrong(fault, "fallback: a step is due on both sides of a comma", accepted_steps);
		if (has_ended)
			return wrong(fault, "fallback: nothing follows an errno", "errno:NAME as the last step");
		if (steps == CHAIN_STEPS_MAX)
			return wrong(fault, "fallback: too many steps", "at most 8");
		if (!read_step(&step, one, len, fault) || !put_step(&t, c, &step, one, len, has_file, fault))
			return false;
		has_ended = step.source == DEGRADED_ERRNO;
	}
	*kept = t.is_cut ? NULL : config_keep(c, text, t.len);
	return *kept != NULL || wrong(fault, "fallback: the chain is too long", "at most 900 bytes, with whole paths");
}
