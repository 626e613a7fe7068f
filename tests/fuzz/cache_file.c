/* A file of the cache's as somebody else wrote it, with a right check where the first octet says so: it is served
 * whole, to the request that its key names, or not at all. Then: what its length is off by, and patches of (offset 2,
 * length 1, octets). */
#include <fcntl.h>

#include "base/hash.h"
#include "fuzz.h"

#include "../unit/engine_cache_help.h"

#define SAID "GET /x HTTP/1.1\r\nHost: a.test\r\nAccept: y\r\nCookie: z\r\n\r\n"
#define KEY HERE "\na.test\n/x"

static char path[400], right[4096];
static size_t right_n;

static void prepare(void)
{
	static struct octets request, answer;
	make_folder();
	atexit(remove_folder);
	request = string(SAID);
	answer = string("HTTP/1.1 200 OK\r\nVary: Accept\r\nContent-Length: 4\r\nX-Field: v\r\n\r\nbody");
	pass_by(HERE, &request, &answer, WHOLE);
	DIR *d = opendir(dir);
	for (struct dirent *e; d && (e = readdir(d));)
		if (e->d_name[0] != '.')
			path_of(path, e->d_name);
	claim(d && path[0]);
	closedir(d);
	int fd = open(path, O_RDONLY);
	ssize_t n = read(fd, right, sizeof right);
	claim(n > (ssize_t)sizeof(struct cached) && n < 2048 && close(fd) == 0);
	right_n = (size_t)n;
}

static void sign(char *file, size_t n)
{
	struct cached c;
	if (n < sizeof c)
		return;
	memcpy(&c, file, sizeof c);
	c.check = 0;
	c.check = hash_bytes(hash_bytes(HASH_START, &c, sizeof c), file + sizeof c, n - sizeof c);
	memcpy(file, &c, sizeof c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct octets request, said;
	static char file[4096];
	struct cached c;
	if (size < 2)
		return 0;
	if (!path[0])
		prepare();
	bool is_signed = data[0] & 1;
	size_t n = right_n + (size_t)(ssize_t)(int8_t)data[1];
	memset(file, 0, sizeof file);
	memcpy(file, right, right_n);
	data += 2;
	for (size -= 2; size > 3;) {
		size_t at = (size_t)(data[0] | (data[1] & 7) << 8), len = data[2] % 65;
		data += 3;
		size -= 3;
		len = len > size ? size : len;
		memcpy(file + at, data, len);
		data += len;
		size -= len;
	}
	if (is_signed)
		sign(file, n);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	claim(fd >= 0 && write(fd, file, n) == (ssize_t)n && close(fd) == 0);
	request = string(SAID);
	bool is_well = ask(HERE, &request, WHOLE, &said);
	if (!is_well || !is_served(&said))
		return 0;
	memcpy(&c, file, sizeof c);
	claim(c.key_len == strlen(KEY) && memcmp(file + sizeof c, KEY, c.key_len) == 0);
	claim(is_signed || (n == right_n && memcmp(file, right, n) == 0));
	/* Its lines and its body stand in it as they are in the file. */
	size_t body = sizeof c + c.key_len + c.vary_len + c.head_len;
	claim(body + c.body_len <= n && said.n >= c.body_len && c.age_s >= 0);
	claim(memcmp(said.at + said.n - c.body_len, file + body, c.body_len) == 0);
	return 0;
}
