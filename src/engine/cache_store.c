/* See cache_store.h. */
#include "engine/cache_store.h"

#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/sys.h"
#include "base/text.h"
#include "engine/cache.h"
#include "engine/guest.h"
#include "wire/http1_skim.h"

static const char magic[8] = "RESILCA1";

/* ---- fields ---- */

struct field {
	const char *name, *value;
	size_t name_len, value_len;
};

/* The next line of a head behind *at that is a field; false: the head's end. */
static bool next_field(const char **at, const char *end, struct field *f)
{
	const char *line = *at;
	while (line < end) {
		const char *stop = memchr(line, '\n', (size_t)(end - line));
		if (!stop)
			return false;
		*at = stop + 1;
		const char *colon = memchr(line, ':', (size_t)(stop - line));
		if (!colon) {
			line = stop + 1;
			continue;
		}
		f->name = line;
		f->name_len = (size_t)(colon - line);
		for (colon++; colon < stop && (*colon == ' ' || *colon == '\t');)
			colon++;
		while (stop > colon && (stop[-1] == '\r' || stop[-1] == ' ' || stop[-1] == '\t'))
			stop--;
		f->value = colon;
		f->value_len = (size_t)(stop - colon);
		return true;
	}
	return false;
}

static const char *fields_of(const char *head, uint32_t n)
{
	const char *line = memchr(head, '\n', n);
	return line ? line + 1 : head + n;
}

static bool is_named(const struct field *f, const char *name)
{
	return f->name_len == strlen(name) && strncasecmp(f->name, name, f->name_len) == 0;
}

/* The next word of a list with commas, without its value; false: its end. */
static bool next_word(const char **at, const char *end, const char **word, size_t *n)
{
	while (*at < end && (**at == ' ' || **at == ',' || **at == '\t'))
		(*at)++;
	*word = *at;
	while (*at < end && **at != ',')
		(*at)++;
	*n = (size_t)(*at - *word);
	const char *value = memchr(*word, '=', *n);
	if (value)
		*n = (size_t)(value - *word);
	while (*n > 0 && ((*word)[*n - 1] == ' ' || (*word)[*n - 1] == '\t'))
		(*n)--;
	return *n > 0;
}

static bool forbids(const struct field *f, const char *const *words)
{
	const char *at = f->value, *end = at + f->value_len, *word;
	size_t n;
	while (next_word(&at, end, &word, &n))
		for (const char *const *w = words; *w; w++)
			if (n == strlen(*w) && strncasecmp(word, *w, n) == 0)
				return true;
	return false;
}

static bool has_only(const struct field *f, const char *word)
{
	return f->value_len == strlen(word) && strncasecmp(f->value, word, f->value_len) == 0;
}

static bool find(const char *head, uint32_t len, const char *name, struct field *f)
{
	const char *at = fields_of(head, len);
	while (next_field(&at, head + len, f))
		if (is_named(f, name))
			return true;
	return false;
}

/* No line of it that two readers might read differently: continued, without a name, with a blank before its colon, or
 * with an octet that no line may have (NUL, a CR alone). */
static bool is_plain(const char *head, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++) {
		bool ends_line = head[i] == '\n' || (head[i] == '\r' && i + 1 < len && head[i + 1] == '\n');
		if (((unsigned char)head[i] < ' ' && head[i] != '\t' && !ends_line) || head[i] == 0x7f)
			return false;
	}
	const char *line = fields_of(head, len), *end = head + len, *stop;
	for (; line < end && (stop = memchr(line, '\n', (size_t)(end - line))) != NULL; line = stop + 1) {
		const char *colon = memchr(line, ':', (size_t)(stop - line));
		if (stop == line || (stop == line + 1 && *line == '\r'))
			return true;
		if (!colon || colon == line || colon[-1] == ' ' || colon[-1] == '\t' || *line == ' ' || *line == '\t')
			return false;
	}
	return true;
}

/* ---- keys ---- */

static void put_lower(struct text *t, const char *s, size_t n)
{
	for (size_t i = 0; i < n; i++)
		text_char(t, s[i] >= 'A' && s[i] <= 'Z' ? (char)(s[i] + 32) : s[i]);
}

bool cache_key_make(struct cache_key *k, const char *destination, const struct served *request)
{
	struct text t = TEXT_ON(k->text);
	struct field host, other;
	const char *head = request->head;
	uint32_t n = request->head_len;
	size_t method_len, target_len;
	const char *target;
	if (request->is_cut || request->has_body || !is_plain(head, n) || !find(head, n, "Host", &host) ||
		!http1_request_line(head, n, &method_len, &target, &target_len) || find(head, n, "Upgrade", &other))
		return false;
	/* Two of them, and the server may have gone by the other. */
	const char *at = host.value + host.value_len;
	for (const char *end = head + n; next_field(&at, end, &other);)
		if (is_named(&other, "Host"))
			return false;
	k->text[0] = '\0';
	text_fmt(&t, "%s\n", destination);
	put_lower(&t, host.value, host.value_len);
	text_char(&t, '\n');
	text_bytes(&t, target, target_len);
	k->len = (uint32_t)t.len;
	k->hash = hash_mix(hash_bytes(HASH_START, k->text, k->len));
	return !t.is_cut;
}

/* A line "name: value" of the request's value of a field. */
static void put_vary(struct text *t, const char *name, size_t n, const struct served *request)
{
	struct field f;
	const char *at = fields_of(request->head, request->head_len);
	put_lower(t, name, n);
	text_char(t, ':');
	while (next_field(&at, request->head + request->head_len, &f))
		if (f.name_len == n && strncasecmp(f.name, name, n) == 0) {
			text_char(t, ' ');
			text_bytes(t, f.value, f.value_len);
		}
	text_char(t, '\n');
}

/* The request's values of what the answer says it depends on, a line each. False: it depends on what cannot be told, or
 * on too much. What came to a cookie may be one person's, and often does not say so: it is nobody else's. */
static bool make_vary(
	char vary[CACHE_VARY_MAX], uint32_t *len, const struct served *request, const char *head, uint32_t head_len)
{
	static const char implied[] = "accept-encoding", cookie[] = "cookie";
	struct text t = {.at = vary, .cap = CACHE_VARY_MAX};
	struct field f;
	const char *line = fields_of(head, head_len), *word;
	size_t n;
	vary[0] = '\0';
	while (next_field(&line, head + head_len, &f)) {
		bool is_coded = is_named(&f, "Content-Encoding");
		if (!is_named(&f, "Vary") && !is_coded)
			continue;
		const char *at = is_coded ? implied : f.value;
		const char *end = at + (is_coded ? sizeof implied - 1 : f.value_len);
		while (next_word(&at, end, &word, &n)) {
			if (n == 1 && *word == '*')
				return false;
			put_vary(&t, word, n, request);
		}
	}
	if (find(request->head, request->head_len, "Cookie", &f))
		put_vary(&t, cookie, sizeof cookie - 1, request);
	*len = (uint32_t)t.len;
	return !t.is_cut;
}

/* Does this request have the values that the kept one had? */
static bool fits_vary(const char *vary, uint32_t len, const struct served *request)
{
	const char *end = vary + len;
	for (const char *line = vary; line < end;) {
		const char *stop = memchr(line, '\n', (size_t)(end - line));
		const char *colon = stop ? memchr(line, ':', (size_t)(stop - line)) : NULL;
		if (!colon)
			return false;
		char now[CACHE_VARY_MAX];
		struct text t = TEXT_ON(now);
		struct field f;
		const char *its = fields_of(request->head, request->head_len);
		now[0] = '\0';
		while (next_field(&its, request->head + request->head_len, &f))
			if (f.name_len == (size_t)(colon - line) && strncasecmp(f.name, line, f.name_len) == 0) {
				text_char(&t, ' ');
				text_bytes(&t, f.value, f.value_len);
			}
		if (t.is_cut || t.len != (size_t)(stop - colon - 1) || memcmp(now, colon + 1, t.len) != 0)
			return false;
		line = stop + 1;
	}
	return true;
}

bool cache_may_keep(const struct served *request, const char *head, uint32_t head_len, int status)
{
	static const char *const never[] = {"no-store", NULL};
	static const char *const not_stale[] = {
		"no-store", "private", "no-cache", "must-revalidate", "proxy-revalidate", "s-maxage", NULL};
	struct field f;
	const char *at = fields_of(request->head, request->head_len);
	if (status != 200 || request->parser.method != HTTP_GET || !is_plain(head, head_len))
		return false;
	while (next_field(&at, request->head + request->head_len, &f))
		if (is_named(&f, "Authorization") || is_named(&f, "Range") || is_named(&f, "If-Range") ||
			(is_named(&f, "Cache-Control") && forbids(&f, never)))
			return false;
	at = fields_of(head, head_len);
	unsigned codings = 0;
	while (next_field(&at, head + head_len, &f)) {
		bool is_coding = is_named(&f, "Transfer-Encoding");
		if (is_named(&f, "Set-Cookie") || is_named(&f, "Set-Cookie2") || is_named(&f, "Content-Range") ||
			is_named(&f, "Trailer") || (is_named(&f, "Cache-Control") && forbids(&f, not_stale)) ||
			(is_named(&f, "Pragma") && forbids(&f, not_stale)))
			return false;
		/* Another coding of the way would have to be undone. */
		if (is_coding && (codings++ > 0 || !has_only(&f, "chunked")))
			return false;
	}
	return true;
}

/* ---- files ---- */

static uint64_t hash_of_destination(const char *destination)
{
	return hash_mix(hash_bytes(HASH_START, destination, strlen(destination)));
}

static void put_hex(struct text *t, uint64_t v, unsigned digits)
{
	while (digits-- > 0)
		text_char(t, "0123456789abcdef"[v >> 4 * digits & 15]);
}

static bool make_path(char path[400], const char *destination, uint64_t hash)
{
	struct text t = {.at = path, .cap = 360};
	char dir[300];
	if (!guest_cache_dir(dir, sizeof dir))
		return false;
	path[0] = '\0';
	text_fmt(&t, "%s/", dir);
	put_hex(&t, hash_of_destination(destination), 8);
	text_char(&t, '-');
	put_hex(&t, hash, 16);
	return !t.is_cut;
}

/* Ours, no link, nobody else's to write to (E11). */
static bool make_dir(char dir[300])
{
	struct stat st;
	if (!guest_cache_dir(dir, 300))
		return false;
	sys_mkdir(dir, 0700);
	return sys_lstat(dir, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == sys_geteuid() && (st.st_mode & 022) == 0;
}

struct entry {
	uint64_t ino;
	int64_t off;
	uint16_t len;
	uint8_t type;
	char name[];
};

/* Calls back with each name; how many there are. */
static uint32_t each_file(bool (*fn)(const char *name, void *context), void *context)
{
	char dir[300];
	_Alignas(8) char buf[4096];
	uint32_t count = 0;
	int fd = guest_cache_dir(dir, sizeof dir) ? sys_open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0)
						  : -1;
	if (fd < 0)
		return 0;
	long n;
	bool goes_on = true;
	while (goes_on && (n = SYS3(SYS_getdents64, fd, buf, sizeof buf)) > 0)
		for (long at = 0; goes_on && at < n;) {
			const struct entry *e = (const struct entry *)(void *)(buf + at);
			at += e->len;
			if (e->name[0] == '.')
				continue;
			count++;
			goes_on = fn(e->name, context);
		}
	sys_close(fd);
	return count;
}

struct search {
	const char *prefix; /* null: any */
	uint32_t count;
	int64_t oldest_wall_ns; /* written before it: too old */
	bool is_there;
};

static bool look(const char *name, void *context)
{
	struct search *s = context;
	s->count++;
	if (!s->prefix || strncmp(name, s->prefix, strlen(s->prefix)) != 0)
		return true;
	char dir[300], path[400];
	struct text t = TEXT_ON(path);
	struct stat st;
	path[0] = '\0';
	if (guest_cache_dir(dir, sizeof dir))
		text_fmt(&t, "%s/%s", dir, name);
	s->is_there =
		sys_lstat(path, &st) == 0 && st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec >= s->oldest_wall_ns;
	return !s->is_there;
}

bool cache_may_serve(const char *destination, int64_t max_age_ns)
{
	char prefix[16] = "";
	struct text t = TEXT_ON(prefix);
	put_hex(&t, hash_of_destination(destination), 8);
	text_char(&t, '-');
	struct search s = {.prefix = prefix, .oldest_wall_ns = clock_wall_ns() - max_age_ns};
	each_file(look, &s);
	return s.is_there;
}

/* Is there room for another file? Else one of those that are there goes, whichever is met first: which of them will be
 * asked for again nobody knows. */
static bool drop_one(const char *name, void *path)
{
	char dir[300];
	struct text t = {.at = path, .cap = 400};
	if (!guest_cache_dir(dir, sizeof dir))
		return false;
	text_fmt(&t, "%s/%s", dir, name);
	sys_unlink(path);
	return false;
}

static void make_room(const char *path)
{
	struct search s = {.prefix = NULL};
	char victim[400] = "";
	if (sys_access(path, F_OK) == 0)
		return; /* it takes that one's place */
	each_file(look, &s);
	if (s.count >= CACHE_FILES_MAX)
		each_file(drop_one, victim);
}

static uint64_t check_of(const struct cached *c)
{
	struct cached copy = *c;
	copy.check = 0;
	return hash_bytes(HASH_START, &copy, sizeof copy);
}

static bool is_hop_by_hop(const struct field *f, const char *head, uint32_t len)
{
	static const char *const names[] = {"Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate",
		"Proxy-Authentication-Info", "Transfer-Encoding", "Content-Length", "Age", "Warning", "Upgrade", "TE",
		"X-Resil-Source", NULL};
	for (const char *const *n = names; *n; n++)
		if (is_named(f, *n))
			return true;
	struct field by;
	const char *at = fields_of(head, len), *word;
	size_t n;
	while (next_field(&at, head + len, &by))
		if (is_named(&by, "Connection"))
			for (const char *list = by.value; next_word(&list, by.value + by.value_len, &word, &n);)
				if (n == f->name_len && strncasecmp(word, f->name, n) == 0)
					return true;
	return false;
}

static bool read_digits(const char *s, unsigned n, int64_t *v)
{
	*v = 0;
	for (unsigned i = 0; i < n; i++) {
		if (s[i] < '0' || s[i] > '9')
			return false;
		*v = *v * 10 + (s[i] - '0');
	}
	return n > 0;
}

/* "Sun, 06 Nov 1994 08:49:37 GMT", the one form that anybody sends, as seconds since 1970. */
static bool read_date(const struct field *f, int64_t *s)
{
	static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
	const char *v = f->value;
	char name[4] = "";
	int64_t day, year, hour, minute, second;
	if (f->value_len != 29 || memcmp(v + 25, " GMT", 4) != 0 || !read_digits(v + 5, 2, &day) ||
		!read_digits(v + 12, 4, &year) || !read_digits(v + 17, 2, &hour) || !read_digits(v + 20, 2, &minute) ||
		!read_digits(v + 23, 2, &second))
		return false;
	memcpy(name, v + 8, 3);
	const char *month = strstr(months, name);
	if (!month || (month - months) % 3 != 0)
		return false;
	/* Days before the month, of years that begin in March: the leap day is their last. */
	int64_t m = (month - months) / 3, y = year - (m < 2);
	int64_t days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * ((m + 10) % 12) + 2) / 5 + day - 1 - 719468;
	*s = ((days * 24 + hour) * 60 + minute) * 60 + second;
	return true;
}

/* How old it was when it came (RFC 9111, 4.2.3): by Age, or by its date. */
static int64_t age_of(const char *head, uint32_t len, int64_t wall_ns)
{
	struct field f;
	int64_t age = 0, v, now = wall_ns / NS_PER_S;
	const char *at = fields_of(head, len);
	while (next_field(&at, head + len, &f)) {
		/* Beyond 31 bits is as old as that (RFC 9111, 1.2.2). */
		bool is_long = f.value_len > 10;
		bool is_age = is_named(&f, "Age") && read_digits(f.value, is_long ? 10 : (unsigned)f.value_len, &v);
		if (is_age && (is_long || v > INT32_MAX))
			v = INT32_MAX;
		else if (!is_age && is_named(&f, "Date") && read_date(&f, &v))
			v = now - v;
		else if (!is_age)
			continue;
		age = v > age ? v : age;
	}
	return age;
}

/* The lines of an answer's head that are its own and not the connection's. */
static bool filter_head(struct text *t, const char *head, uint32_t len)
{
	struct field f;
	const char *at = fields_of(head, len);
	while (next_field(&at, head + len, &f)) {
		if (is_hop_by_hop(&f, head, len))
			continue;
		text_bytes(t, f.name, f.name_len);
		text_str(t, ": ");
		text_bytes(t, f.value, f.value_len);
		text_str(t, "\r\n");
	}
	return !t->is_cut;
}

static bool write_all(int fd, const void *octets, size_t n)
{
	return n == 0 || sys_write(fd, octets, n) == (ssize_t)n;
}

void cache_keep(const struct cache_key *k, const char *destination, const struct served *request, const char *head,
	uint32_t head_len, const void *body, uint32_t body_len)
{
	static char kept_head[SERVED_HEAD_MAX + 512], vary[CACHE_VARY_MAX]; /* one thread */
	char dir[300], path[400], beside[440];
	struct cached c = {.stored_ns = clock_now_ns(), .stored_wall_ns = clock_wall_ns(), .body_len = body_len};
	struct text t = TEXT_ON(kept_head), b = TEXT_ON(beside);
	kept_head[0] = '\0';
	if (!make_vary(vary, &c.vary_len, request, head, head_len) || !filter_head(&t, head, head_len) ||
		!make_dir(dir) || !make_path(path, destination, k->hash))
		return;
	memcpy(c.magic, magic, sizeof magic);
	c.age_s = age_of(head, head_len, c.stored_wall_ns);
	c.key_len = k->len;
	c.head_len = (uint32_t)t.len;
	uint64_t check = check_of(&c);
	check = hash_bytes(check, k->text, k->len);
	check = hash_bytes(check, vary, c.vary_len);
	check = hash_bytes(check, kept_head, c.head_len);
	c.check = hash_bytes(check, body, body_len);
	make_room(path);
	text_fmt(&b, "%s/.%d", dir, (int)sys_gettid());
	sys_unlink(beside); /* left by one that was killed */
	int fd = sys_open(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	bool is_whole = write_all(fd, &c, sizeof c) && write_all(fd, k->text, k->len) &&
			write_all(fd, vary, c.vary_len) && write_all(fd, kept_head, c.head_len) &&
			write_all(fd, body, body_len);
	sys_close(fd);
	if (!is_whole || sys_rename(beside, path) != 0)
		sys_unlink(beside);
}

void cache_forget(const struct cache_key *k, const char *destination)
{
	char path[400];
	if (make_path(path, destination, k->hash))
		sys_unlink(path);
}

static bool read_all(int fd, void *to, size_t n)
{
	return n == 0 || sys_read(fd, to, n) == (ssize_t)n;
}

/* Content and key are what they should be: the file is read through once. */
static bool is_whole(int fd, const struct cache_key *k, const struct served *request, const struct cached *c)
{
	static char buf[CACHE_KEY_MAX + CACHE_VARY_MAX]; /* one thread */
	char piece[8192];
	if (memcmp(c->magic, magic, sizeof magic) != 0 || c->key_len != k->len || c->vary_len > CACHE_VARY_MAX ||
		c->head_len > SERVED_HEAD_MAX + 512 || c->body_len > CACHE_BODY_MAX ||
		!read_all(fd, buf, c->key_len + c->vary_len) || memcmp(buf, k->text, k->len) != 0 ||
		!fits_vary(buf + c->key_len, c->vary_len, request))
		return false;
	uint64_t check = hash_bytes(check_of(c), buf, c->key_len + c->vary_len);
	for (uint32_t left = c->head_len + c->body_len; left > 0;) {
		uint32_t n = left < sizeof piece ? left : (uint32_t)sizeof piece;
		if (!read_all(fd, piece, n))
			return false;
		check = hash_bytes(check, piece, n);
		left -= n;
	}
	return check == c->check && sys_read(fd, piece, 1) == 0;
}

/* A file of ours, with what it begins with; -1: none. */
static int open_file(const char *destination, uint64_t hash, struct cached *c)
{
	char path[400];
	struct stat st;
	int fd = make_path(path, destination, hash) ? sys_open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0) : -1;
	if (fd < 0)
		return -1;
	if (sys_fstat(fd, &st) == 0 && st.st_uid == sys_geteuid() && S_ISREG(st.st_mode) && read_all(fd, c, sizeof *c))
		return fd;
	sys_close(fd);
	return -1;
}

int cache_open_again(uint64_t hash, const char *destination, const struct cached *c)
{
	struct cached now;
	int fd = open_file(destination, hash, &now);
	if (fd >= 0 && memcmp(&now, c, sizeof now) == 0)
		return fd;
	if (fd >= 0)
		sys_close(fd);
	return -1;
}

int cache_open(const struct cache_key *k, const char *destination, const struct served *request, int64_t max_age_ns,
	struct cached *c, int64_t *age_s)
{
	int fd = open_file(destination, k->hash, c);
	if (fd < 0)
		return -1;
	/* By both clocks: one of them may have been set, or begun anew with the machine. */
	if (is_whole(fd, k, request, c)) {
		int64_t wall = clock_wall_ns(), run = clock_now_ns(), most_s = max_age_ns / NS_PER_S;
		bool is_past = c->stored_wall_ns >= 0 && c->stored_wall_ns <= wall && c->stored_ns >= 0 &&
			       c->stored_ns <= run && c->age_s >= 0 && c->age_s <= most_s;
		int64_t by_wall = is_past ? wall - c->stored_wall_ns : 0, by_run = is_past ? run - c->stored_ns : 0;
		int64_t age = by_wall > by_run ? by_wall : by_run;
		*age_s = age / NS_PER_S + (is_past ? c->age_s : 0);
		if (is_past && *age_s <= most_s && age <= max_age_ns)
			return fd;
	}
	sys_close(fd);
	return -1;
}
