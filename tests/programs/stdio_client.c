/* One GET over stdio: fdopen, fprintf, fgets, fread. libc's own reads and writes are inside it; no name is called that
 * a shim could take, but for connect.
 *
 * usage: stdio_client PORT       exit codes: 0 a whole answer below 400, 1 an error or an end before the body's */
#include "tool.h"

static void fail_if_error(FILE *stream, const char *doing)
{
	if (ferror(stream)) {
		fprintf(stderr, "%s: %s\n", doing, errno_name(errno));
		exit(1);
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = local_address(argc == 2 ? atoi(argv[1]) : 0);
	int fd = new_socket(0), status = 0;
	size_t length = 0, got;
	char line[512], body[1024];
	FILE *in, *out;

	if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
		fprintf(stderr, "connect: %s\n", errno_name(errno));
		return 1;
	}
	must((in = fdopen(fd, "r")) != NULL && (out = fdopen(dup(fd), "w")) != NULL);
	fprintf(out, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
	fflush(out);
	fail_if_error(out, "request");
	while (fgets(line, sizeof line, in) && line[0] != '\r') {
		sscanf(line, "HTTP/1.1 %d", &status);
		sscanf(line, "Content-Length: %zu", &length);
	}
	fail_if_error(in, "head");
	must(length < sizeof body);
	got = fread(body, 1, length, in);
	fail_if_error(in, "body");
	if (status == 0 || got < length) {
		fprintf(stderr, "an end after %zu of %zu octets\n", got, length);
		return 1;
	}
	return status >= 400;
}
