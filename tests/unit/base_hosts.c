/* Which names this machine answers by itself (base/hosts.h): as libc reads /etc/hosts and nsswitch.conf, in doubt no.
 */
#include "policy_load.h"

#include <sys/socket.h>

#include "base/hosts.h"

static const char *text_file(const char *text, size_t n)
{
	return load_file("file", text, n);
}

static void test_hosts(void)
{
	static const char text[] = "# comment localhost9\n"
				   "127.0.0.1\tlocalhost  lh # trailing\n"
				   "\n"
				   "   ::1 ip6 localhost\r\n"
				   "10.0.0.1#glued\n"
				   "nonsense name\n"
				   "10.0.0.2 Mixed.Case\n"
				   "fe80::1%2 zoned\n"
				   "10.0.0.3 last";
	static const struct {
		const char *name;
		int family;
		bool has;
	} trials[] = {
		{"localhost", AF_INET, true},
		{"localhost", AF_INET6, true},
		{"lh", AF_INET, true},
		{"lh", AF_INET6, false},
		{"lh", AF_UNSPEC, true},
		{"LH", AF_UNSPEC, true},
		{"ip6", AF_INET, false},
		{"ip6", AF_UNSPEC, true},
		{"localhost9", AF_UNSPEC, false},
		{"trailing", AF_UNSPEC, false},
		{"glued", AF_UNSPEC, false},
		{"name", AF_UNSPEC, false},
		{"nonsense", AF_UNSPEC, false},
		{"10.0.0.2", AF_UNSPEC, false},
		{"mixed.case", AF_INET, true},
		{"mixed", AF_INET, false},
		{"zoned", AF_INET6, true},
		{"last", AF_INET, true},
		{"lastly", AF_INET, false},
		{"", AF_UNSPEC, false},
	};
	const char *path = text_file(text, sizeof text - 1);
	for (size_t i = 0; i < sizeof trials / sizeof trials[0]; i++)
		tap_ok(hosts_file_has(path, trials[i].name, trials[i].family) == trials[i].has, "'%s' of family %d: %s",
			trials[i].name, trials[i].family, trials[i].has ? "there" : "not there");
	tap_ok(!hosts_file_has("/no/such/file", "localhost", AF_UNSPEC), "no file, no name");
}

/* A name that lies over the edge of the buffer, wherever that is; words longer than any name. */
static void test_edges(void)
{
	static char text[9000];
	for (size_t pad = 0; pad < 4500; pad += 7) {
		size_t n = 0;
		memset(text, '#', pad);
		n = pad;
		n += (size_t)snprintf(text + n, sizeof text - n, "\n10.0.0.1 over.the.edge\n");
		tap_expect(hosts_file_has(text_file(text, n), "over.the.edge", AF_INET), "after %zu octets", pad);
	}
	tap_all("a name at every place");
	for (size_t length = 250; length < 600; length++) {
		memset(text, 'a', sizeof text);
		memcpy(text, "10.0.0.1 ", 9);
		size_t n = 9 + length;
		n += (size_t)snprintf(text + n, sizeof text - n, " after\n");
		char name[700];
		memset(name, 'a', length);
		name[length] = '\0';
		const char *path = text_file(text, n);
		tap_expect(hosts_file_has(path, "after", AF_INET), "after a word of %zu", length);
		tap_expect(hosts_file_has(path, name, AF_INET) == (length < 256), "a word of %zu", length);
	}
	tap_all("words of every length");
}

static void test_order(void)
{
	static const struct {
		const char *text;
		bool first;
	} trials[] = {
		{"hosts: files dns\n", true},
		{"passwd: db files\nhosts:\t files dns", true},
		{"hosts:files dns\n", true},
		{"hosts: dns files\n", false},
		{"hosts: mymachines files dns\n", false},
		{"# hosts: files\nhosts: dns\n", false},
		{"passwd: files\n", false},
		{"hosts:\nfiles: x\n", false},
		{"", false},
	};
	for (size_t i = 0; i < sizeof trials / sizeof trials[0]; i++)
		tap_ok(hosts_come_first(text_file(trials[i].text, strlen(trials[i].text))) == trials[i].first,
			"order %zu: %s", i, trials[i].first ? "first" : "not first");
	tap_ok(!hosts_come_first("/no/such/file"), "no file: not first");
}

int main(void)
{
	load_mk_dir();
	test_hosts();
	test_edges();
	test_order();
	return tap_done();
}
