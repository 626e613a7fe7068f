/* See hosts.h. Called before a look-up that a limit or a circuit is for, on any thread. */
#include "base/hosts.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/addr.h"
#include "base/sys.h"

#define WORD_MAX 256 /* longer words are no name that we look for */

/* The words of a file, line by line: comments gone, as the resolver reads them. */
struct words {
	int fd;
	size_t at, n;
	bool is_end;
	char word[WORD_MAX]; /* "": too long to be of interest */
	unsigned index;	     /* of the word in its line */
	char buf[2048];
};

static int next_char(struct words *w)
{
	if (w->at == w->n) {
		ssize_t got;
		do
			got = sys_read(w->fd, w->buf, sizeof w->buf);
		while (got == -EINTR);
		if (got <= 0)
			return -1;
		w->n = (size_t)got;
		w->at = 0;
	}
	return (unsigned char)w->buf[w->at++]; /* NOLINT(clang-analyzer-core.uninitialized.UndefReturn): sys_read */
}

static bool is_blank(int c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

/* The next word of a line, or of the next one that has any; false at the end. */
static bool next_word(struct words *w)
{
	size_t n = 0;
	bool is_comment = false;
	w->index++;
	while (!w->is_end) {
		int c = next_char(w);
		w->is_end = c < 0;
		bool is_line_end = c < 0 || c == '\n';
		if (n > 0 && (is_line_end || is_blank(c) || c == '#')) {
			w->word[n < WORD_MAX ? n : 0] = '\0';
			/* Not consumed: the end of the line is seen again. */
			if (c >= 0)
				w->at--;
			w->is_end = false;
			return true;
		}
		if (is_line_end) {
			is_comment = false;
			w->index = 0;
		} else if (c == '#') {
			is_comment = true;
		} else if (!is_comment && !is_blank(c)) {
			if (n < WORD_MAX - 1)
				w->word[n] = (char)c;
			n += n < WORD_MAX;
		}
	}
	return false;
}

static bool words_open(struct words *w, const char *path)
{
	w->fd = sys_open(path, O_RDONLY | O_CLOEXEC, 0);
	w->at = w->n = 0;
	w->is_end = false;
	w->index = UINT32_MAX;
	return w->fd >= 0;
}

bool hosts_file_has(const char *path, const char *name, int family)
{
	struct words w;
	struct addr a;
	bool has = false, is_of_family = false;
	if (!words_open(&w, path))
		return false;
	while (!has && next_word(&w)) {
		if (w.index == 0)
			is_of_family = addr_from_literal(&a, w.word) &&
				       (family == AF_UNSPEC || addr_is_v4(&a) == (family == AF_INET));
		else
			has = is_of_family && strcasecmp(w.word, name) == 0;
	}
	sys_close(w.fd);
	return has;
}

unsigned hosts_find(const char *name, struct addr *addrs, unsigned most)
{
	struct words w;
	struct addr a;
	unsigned n = 0;
	bool is_address = false;
	if (!words_open(&w, "/etc/hosts"))
		return 0;
	while (n < most && next_word(&w)) {
		if (w.index == 0)
			is_address = addr_from_literal(&a, w.word);
		else if (is_address && strcasecmp(w.word, name) == 0)
			addrs[n++] = a;
	}
	sys_close(w.fd);
	return n;
}

bool hosts_come_first(const char *nsswitch)
{
	struct words w;
	bool is_hosts = false, do_they = false;
	if (!words_open(&w, nsswitch))
		return false;
	while (next_word(&w)) {
		if (is_hosts && w.index == 1) {
			do_they = strcmp(w.word, "files") == 0;
			break;
		}
		is_hosts = w.index == 0 && strcmp(w.word, "hosts:") == 0;
		if (w.index == 0 && strcmp(w.word, "hosts:files") == 0) {
			do_they = true;
			break;
		}
	}
	sys_close(w.fd);
	return do_they;
}

bool hosts_answers(const char *name, int family)
{
	return hosts_file_has("/etc/hosts", name, family) && hosts_come_first("/etc/nsswitch.conf");
}
