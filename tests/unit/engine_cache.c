/* The cache of `cache(AGE)` without sockets: what its tee keeps of what passes, and what its end point serves of that.
 * tests/heads/cache has the cases of RFC 9111, each whole, octet by octet and cut at random. */
#include <fcntl.h>
#include <time.h>

#include "base/hash.h"
#include "engine_cache_help.h"
#include "tap.h"

static const char *body_of(const struct octets *answer)
{
	const char *end = strstr(answer->at, "\r\n\r\n");
	return end ? end + 4 : "(no body)";
}

static long age_of(const struct octets *answer)
{
	const char *age = strstr(answer->at, "\r\nAge: ");
	return age ? atol(age + 7) : -1;
}

/* ---- the cases ---- */

struct one {
	char name[128];
	bool is_kept;
	unsigned number;
	struct octets request, answer;
	char serves[256];
	long age; /* -1: of no matter */
	char hides[4][64];
	unsigned hidden;
};

static void put(struct octets *o, const char *s, size_t n)
{
	if (o->n + n >= OCTETS)
		abort();
	memcpy(o->at + o->n, s, n);
	o->n += (uint32_t)n;
}

static void put_date(struct octets *o, time_t at)
{
	char text[64];
	struct tm tm;
	size_t n = strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&at, &tm));
	put(o, text, n);
}

static void put_line(const struct one *c, struct octets *o, const char *s)
{
	static const char from[] = "rnt\\", to[] = "\r\n\t\\";
	for (; *s; s++) {
		char number[16], *end;
		const char *known = s[0] == '\\' && s[1] ? strchr(from, s[1]) : NULL;
		if (s[0] == '%' && s[1] == 'N') {
			put(o, number, (size_t)snprintf(number, sizeof number, "%u", c->number));
			s++;
		} else if (s[0] == '%' && (s[1] == 'D' || s[1] == 'H')) {
			put_date(o, time(NULL) - (s[1] == 'H' ? 1800 : 0));
			s++;
		} else if (s[0] == '{') {
			unsigned long times = strtoul(s + 1, &end, 10);
			if (end[0] != '*' || !end[1] || end[2] != '}')
				abort();
			for (; times > 0; times--)
				put(o, end + 1, 1);
			s = end + 2;
		} else if (s[0] == '\\' && s[1] == 'x') {
			char hex[3] = {s[2], s[3], 0}, octet = (char)strtoul(hex, NULL, 16);
			put(o, &octet, 1);
			s += 3;
		} else if (known) {
			put(o, &to[known - from], 1);
			s++;
		} else {
			put(o, s, 1);
		}
	}
}

static void judge(const struct one *c)
{
	static struct octets said;
	for (enum cut cut = WHOLE; cut < CUTS; cut++) {
		empty();
		pass_by(HERE, &c->request, &c->answer, cut);
		bool is_well = ask(HERE, &c->request, cut, &said), is = is_well && is_served(&said);
		if (!tap_expect(is == c->is_kept, "%s: %s (cut %d)", c->name, is ? "served" : "not served", cut) || !is)
			continue;
		tap_expect(strcmp(body_of(&said), c->serves) == 0, "%s: '%s'", c->name, body_of(&said));
		tap_expect(strstr(said.at, "\r\nX-Resil-Source: cache\r\n") && strstr(said.at, "\r\nWarning: 110 "),
			"%s: its marks: %s", c->name, said.at);
		tap_expect(c->age < 0 || (age_of(&said) >= c->age && age_of(&said) < c->age + 10), "%s: Age %ld",
			c->name, age_of(&said));
		for (unsigned i = 0; i < c->hidden; i++) {
			char field[80];
			snprintf(field, sizeof field, "\r\n%s", c->hides[i]);
			tap_expect(!strcasestr(said.at, field), "%s: %s", c->name, said.at);
		}
	}
}

static void cases(void)
{
	static struct one c;
	static char line[16384];
	unsigned all = 0;
	FILE *f = fopen("tests/heads/cache", "r");
	while (f && fgets(line, sizeof line, f)) {
		line[strcspn(line, "\n")] = '\0';
		bool is_kept = strncmp(line, "kept ", 5) == 0, is_not = strncmp(line, "not ", 4) == 0;
		const char *rest = strchr(line, ' ');
		rest = rest ? rest + 1 : "";
		if (is_kept || is_not) {
			memset(&c, 0, sizeof c);
			text_copy(c.name, sizeof c.name, rest);
			c.is_kept = is_kept;
			c.number = ++all;
			c.age = -1;
		} else if (line[0] == '>' || line[0] == '+') {
			put_line(&c, &c.request, rest);
			put(&c.request, "\r\n", line[0] == '>' ? 2 : 0);
		} else if (line[0] == '<' || line[0] == '=') {
			put_line(&c, &c.answer, rest);
			put(&c.answer, "\r\n", line[0] == '<' ? 2 : 0);
		} else if (strncmp(line, "serves ", 7) == 0) {
			text_copy(c.serves, sizeof c.serves, rest);
		} else if (strncmp(line, "age ", 4) == 0) {
			c.age = atol(rest);
		} else if (strncmp(line, "hides ", 6) == 0) {
			text_copy(c.hides[c.hidden++], sizeof c.hides[0], rest);
		} else if (!line[0] && c.number) {
			judge(&c);
			c.number = 0;
		}
	}
	if (c.number)
		judge(&c);
	if (f)
		fclose(f);
	tap_expect(all > 150, "%u cases were read", all);
	tap_all("each case of tests/heads/cache is kept, and served, or not, as it says (D5, RFC 9111)");
}

/* ---- whose answer it is ---- */

static struct octets request_of(const char *host, const char *target, const char *more)
{
	char text[1024];
	snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", target, host, more);
	return string(text);
}

static struct octets answer_of(const char *body, const char *more)
{
	char text[1024];
	snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n%s\r\n%s", strlen(body), more, body);
	return string(text);
}

/* What is served; "" for nothing. */
static const char *served_to(const char *destination, const char *host, const char *target, const char *more)
{
	static struct octets said, request;
	request = request_of(host, target, more);
	return ask(destination, &request, WHOLE, &said) && is_served(&said) ? body_of(&said) : "";
}

static void keep(const char *destination, const char *host, const char *target, const char *more, const char *body,
	const char *fields)
{
	static struct octets request, answer;
	request = request_of(host, target, more);
	answer = answer_of(body, fields);
	pass_by(destination, &request, &answer, WHOLE);
}

static void others(void)
{
	empty();
	keep(HERE, "a.test", "/", "", "a's", "");
	tap_ok(strcmp(served_to(HERE, "a.test", "/", ""), "a's") == 0 &&
			strcmp(served_to(HERE, "A.TEST", "/", ""), "a's") == 0,
		"the same host's, in any case");
	tap_ok(!*served_to(HERE, "b.test", "/", "") && !*served_to(HERE, "a.test:80", "/", "") &&
			!*served_to(HERE, "a.test.", "/", ""),
		"no other host's, nor one that might be the same");
	tap_ok(!*served_to("g.test:80", "a.test", "/", "") && !*served_to("h.test:81", "a.test", "/", ""),
		"not from another destination, whatever Host says: who answers for one poisons no other");
	tap_ok(!*served_to(HERE, "a.test", "/?x", "") && !*served_to(HERE, "a.test", "/A", "") &&
			!*served_to(HERE, "a.test", "//", ""),
		"no other target");
	keep(HERE, "b.test", "http://a.test/", "", "poison", "");
	keep(HERE, "b.test", "/", "X-Forwarded-Host: a.test\r\nForwarded: host=a.test\r\nX-Host: a.test\r\n", "poison",
		"");
	keep(HERE, "b.test\n/x", "/", "", "poison", "");
	keep("g.test:80", "a.test", "/", "", "poison", "");
	tap_ok(strcmp(served_to(HERE, "a.test", "/", ""), "a's") == 0,
		"a host that is named elsewhere than in Host changes nobody's answer");
	keep(HERE, "x.test\t", "/", "", "x's", "");
	tap_ok(strcmp(served_to(HERE, "x.test", "/", ""), "x's") == 0, "blanks around Host are none of it");
	empty();
	keep(HERE, "a.test", "/", "Accept-Language: de\r\nAccept: x\r\n", "deutsch", "Vary: Accept-Language\r\n");
	tap_ok(strcmp(served_to(HERE, "a.test", "/", "accept-language:  de \r\n"), "deutsch") == 0,
		"Vary: the same value");
	tap_ok(!*served_to(HERE, "a.test", "/", "") && !*served_to(HERE, "a.test", "/", "Accept-Language: en\r\n") &&
			!*served_to(HERE, "a.test", "/", "Accept-Language: de\r\nAccept-Language: en\r\n"),
		"Vary: another one, none, and one more are others");
	keep(HERE, "a.test", "/z", "Accept-Encoding: gzip\r\n", "coded", "Content-Encoding: gzip\r\n");
	tap_ok(strcmp(served_to(HERE, "a.test", "/z", "Accept-Encoding: gzip\r\n"), "coded") == 0 &&
			!*served_to(HERE, "a.test", "/z", ""),
		"a coded answer goes to nobody who did not ask for that coding, also without Vary");
	keep(HERE, "a.test", "/me", "Cookie: id=1\r\n", "mine", "");
	tap_ok(strcmp(served_to(HERE, "a.test", "/me", "Cookie: id=1\r\n"), "mine") == 0 &&
			!*served_to(HERE, "a.test", "/me", "Cookie: id=2\r\n") &&
			!*served_to(HERE, "a.test", "/me", ""),
		"what came to a cookie goes to that cookie alone");
	static struct octets head, said;
	head = string("HEAD / HTTP/1.1\r\nHost: a.test\r\nAccept-Language: de\r\n\r\n");
	tap_ok(ask(HERE, &head, EACH, &said) && is_served(&said) && !*body_of(&said) &&
			strstr(said.at, "Content-Length: 7\r\n"),
		"HEAD is answered by the head of what GET got");
}

/* How many answers come to it. */
static unsigned answers_to(const char *request)
{
	static struct octets asked, said;
	unsigned n = 0;
	asked = string(request);
	ask(HERE, &asked, WHOLE, &said);
	for (const char *at = said.at; (at = strstr(at, "HTTP/1.1 ")) != NULL; at++)
		n++;
	return n;
}

static void one_each(void)
{
	tap_ok(answers_to("GET / HTTP/1.1\r\nHost: a\r\n\r\nPOST / HTTP/1.1\r\nHost: a\r\nContent-Length: "
			  "2\r\n\r\nxyHEAD / HTTP/1.1\r\nHost: a\r\n\r\n") == 3,
		"each of three requests in one piece has its answer");
	tap_ok(answers_to("CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\nnot HTTP") == 1 &&
			answers_to("GET / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n") == 1,
		"whoever would go on in another protocol has one answer, and not two");
}

/* ---- what stays within bounds ---- */

static void bounds(void)
{
	static struct octets request, said;
	static char octets[CACHE_BODY_MAX + 2];
	struct detour *d = &tee_at;
	memset(octets, 'x', sizeof octets);
	for (unsigned over = 0; over < 2; over++) {
		empty();
		char head[128];
		uint32_t n = CACHE_BODY_MAX + over;
		request = request_of("a.test", "/", "");
		text_copy(d->host, sizeof d->host, HERE);
		cache_tee_begin(d);
		cache_tee(d, DETOUR_UP, request.at, request.n, 0);
		int len = snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Length: %u\r\n\r\n", n);
		cache_tee(d, DETOUR_DOWN, head, (uint32_t)len, 0);
		for (uint32_t at = 0; at < n; at += 50000)
			cache_tee(d, DETOUR_DOWN, octets + at, n - at < 50000 ? n - at : 50000, 0);
		cache_tee_finish(d);
		tap_ok(files() == 1 - over, "a body of %u octets is %s", n, over ? "not kept" : "kept");
	}
	empty();
	for (unsigned i = 0; i < CACHE_FILES_MAX + 40; i++) {
		char target[16];
		snprintf(target, sizeof target, "/%u", i);
		keep(HERE, "a.test", target, "", "x", "");
	}
	tap_ok(files() <= CACHE_FILES_MAX, "%u answers are kept of %u", files(), CACHE_FILES_MAX + 40);
	empty();
	for (unsigned i = 0; i < 40; i++) { /* more at once than there is room to gather */
		request = request_of("a.test", "/", "");
		cache_tee_begin(d);
		cache_tee(d, DETOUR_UP, request.at, request.n, 0);
		cache_tee_finish(d);
	}
	keep(HERE, "a.test", "/", "", "x", "");
	tap_ok(files() == 1, "answers that never came hold no room");
	keep(HERE, "a.test", "/", "", "y", "");
	tap_ok(strcmp(served_to(HERE, "a.test", "/", ""), "y") == 0 && files() == 1,
		"a newer answer takes the older one's place");
	keep(HERE, "a.test", "/", "Authorization: x\r\n", "z", "");
	tap_ok(strcmp(served_to(HERE, "a.test", "/", ""), "y") == 0, "one that may not be kept leaves it");
	request = string("DELETE / HTTP/1.1\r\nHost: a.test\r\n\r\n");
	static struct octets gone;
	gone = string("HTTP/1.1 204 No Content\r\n\r\n");
	pass_by(HERE, &request, &gone, WHOLE);
	tap_ok(!*served_to(HERE, "a.test", "/", ""), "what was deleted is known no more");
	(void)said;
}

/* ---- files of others ---- */

static char only[400];
static int open_only(int flags)
{
	DIR *at = opendir(dir);
	for (struct dirent *e; at && (e = readdir(at));)
		if (e->d_name[0] != '.')
			path_of(only, e->d_name);
	if (at)
		closedir(at);
	return open(only, flags);
}

/* The check over all of a file as cache_store.c has it: a hostile writer can make it. */
static void sign(char *file, size_t n)
{
	struct cached c;
	memcpy(&c, file, sizeof c);
	c.check = 0;
	c.check = hash_bytes(hash_bytes(HASH_START, &c, sizeof c), file + sizeof c, n - sizeof c);
	memcpy(file, &c, sizeof c);
}

static void write_only(const char *file, size_t n)
{
	int fd = open(only, O_WRONLY | O_TRUNC | O_CREAT, 0600);
	if (fd < 0 || write(fd, file, n) != (ssize_t)n)
		abort();
	close(fd);
}

static void damaged(void)
{
	static char right[8192], wrong[8192];
	empty();
	keep(HERE, "a.test", "/", "Accept: x\r\n", "right", "Vary: Accept\r\nX-Field: yes\r\n");
	int fd = open_only(O_RDONLY);
	ssize_t n = read(fd, right, sizeof right);
	close(fd);
	if (n <= (ssize_t)sizeof(struct cached))
		abort();
	for (ssize_t bit = 0; bit < n * 8; bit++) {
		memcpy(wrong, right, (size_t)n);
		wrong[bit / 8] ^= (char)(1 << bit % 8);
		write_only(wrong, (size_t)n);
		tap_expect(!*served_to(HERE, "a.test", "/", "Accept: x\r\n"), "bit %zd", bit);
	}
	for (ssize_t len = 0; len < n; len++) {
		write_only(right, (size_t)len);
		tap_expect(!*served_to(HERE, "a.test", "/", "Accept: x\r\n"), "of length %zd", len);
	}
	write_only(right, (size_t)n + 1);
	tap_expect(!*served_to(HERE, "a.test", "/", "Accept: x\r\n"), "an octet too long");
	tap_all("a file of which any bit is another, or that was cut anywhere or is too long, is not served");
	write_only(right, (size_t)n);
	tap_ok(strcmp(served_to(HERE, "a.test", "/", "Accept: x\r\n"), "right") == 0, "the file itself is");
	static const struct {
		const char *what;
		size_t at;
	} times[] = {{"stored_ns", offsetof(struct cached, stored_ns)},
		{"stored_wall_ns", offsetof(struct cached, stored_wall_ns)}, {"age_s", offsetof(struct cached, age_s)}};
	static const int64_t values[] = {INT64_MIN, INT64_MIN + 1, -1, INT64_MAX, INT64_MAX - 1, INT64_MAX / 2};
	for (size_t t = 0; t < 3; t++)
		for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
			memcpy(wrong, right, (size_t)n);
			memcpy(wrong + times[t].at, &values[v], sizeof values[v]);
			sign(wrong, (size_t)n);
			write_only(wrong, (size_t)n);
			tap_expect(!*served_to(HERE, "a.test", "/", "Accept: x\r\n"), "%s %lld", times[t].what,
				(long long)values[v]);
		}
	tap_all("nor one of a time that cannot be, though its check is right");
	char elsewhere[80];
	snprintf(elsewhere, sizeof elsewhere, "%s.right", dir);
	write_only(right, (size_t)n);
	rename(only, elsewhere);
	if (symlink(elsewhere, only) != 0)
		abort();
	tap_ok(!*served_to(HERE, "a.test", "/", "Accept: x\r\n"), "nor one that a link leads to (E11)");
	unlink(elsewhere);
	unlink(only);
	chmod(dir, 0777);
	empty();
	keep(HERE, "a.test", "/", "", "x", "");
	tap_ok(files() == 0, "nothing is kept in a folder that others may write to (E11)");
	chmod(dir, 0700);
}

int main(void)
{
	make_folder();
	cases();
	others();
	one_each();
	bounds();
	damaged();
	remove_folder();
	return tap_done();
}
