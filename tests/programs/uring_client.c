/* One GET over io_uring: connected by libc, sent and received by the ring, which no name of libc's sees.
 *
 * usage: uring_client PORT       exit codes: 0 a whole answer below 400, 1 an error or an end before the body's */
// link: -luring
#include "tool.h"

#include <liburing.h>

static int completed(struct io_uring *ring)
{
	struct io_uring_cqe *cqe;
	int result, error;

	while ((error = io_uring_submit_and_wait(ring, 1)) == -EINTR)
		;
	must(error >= 0);
	must(io_uring_wait_cqe(ring, &cqe) == 0);
	result = cqe->res;
	io_uring_cqe_seen(ring, cqe);
	if (result < 0) {
		fprintf(stderr, "ring: %s\n", errno_name(-result));
		exit(1);
	}
	return result;
}

int main(int argc, char **argv)
{
	static const char request[] = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
	struct sockaddr_in to = local_address(argc == 2 ? atoi(argv[1]) : 0);
	int fd = new_socket(0), status = 0;
	size_t have = 0, wanted = 0;
	struct io_uring ring;
	char buf[2048];

	must(io_uring_queue_init(4, &ring, 0) == 0);
	if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
		fprintf(stderr, "connect: %s\n", errno_name(errno));
		return 1;
	}
	io_uring_prep_send(io_uring_get_sqe(&ring), fd, request, sizeof request - 1, MSG_NOSIGNAL);
	must(completed(&ring) == sizeof request - 1);
	while (wanted == 0 || have < wanted) {
		char *end;
		int n;

		must(have < sizeof buf - 1);
		io_uring_prep_recv(io_uring_get_sqe(&ring), fd, buf + have, sizeof buf - 1 - have, 0);
		n = completed(&ring);
		if (n == 0) {
			fprintf(stderr, "an end after %zu of %zu octets\n", have, wanted);
			return 1;
		}
		have += (size_t)n;
		buf[have] = '\0';
		end = strstr(buf, "\r\n\r\n");
		if (wanted == 0 && end) {
			const char *length = strstr(buf, "Content-Length: ");

			must(length && sscanf(buf, "HTTP/1.1 %d", &status) == 1);
			wanted = (size_t)(end + 4 - buf) + strtoul(length + 16, NULL, 10);
		}
	}
	io_uring_queue_exit(&ring);
	return status >= 400;
}
