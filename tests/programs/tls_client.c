/* A TLS client whose library no hook meets: its functions are had by dlsym from a handle of their own, as node's and
 * Java's are out of reach. usage: tls_client PORT STEP...
 *   hello N   a ClientHello that offers h2 (N 1) or not (N 0), and the handshake
 *   ask       a request of 40 octets
 *   read N    waits for an answer, N octets of it
 *   wait MS   does nothing
 *   end       close_notify
 * Says what each step came to; ends with 1 at the first that fails. */
// link: -ldl
#include <dlfcn.h>
#include <netinet/tcp.h>

#include "tool.h"

static void *of(const char *name)
{
	static void *library;
	if (!library)
		library = dlopen("libssl.so.3", RTLD_NOW | RTLD_LOCAL);
	must(library);
	void *at = dlsym(library, name);
	must(at);
	return at;
}
#define OF(ret, name, ...) ((ret(*)(__VA_ARGS__))of(#name))

/* The server's end comes after its alert, and may come late; no hook sees us look. */
static void await_end(int fd)
{
	struct tcp_info info;
	socklen_t size = sizeof info;
	for (int tries = 0; tries < 1000; tries++) {
		must(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0);
		if (info.tcpi_state != TCP_ESTABLISHED)
			return;
		usleep(10000);
	}
}

int main(int argc, char **argv)
{
	must(argc > 2);
	struct sockaddr_in to = local_address(atoi(argv[1]));
	int fd = new_socket(0), begin = now_ms();
	must(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
	void *context = OF(void *, SSL_CTX_new, void *)(OF(void *, TLS_client_method, void)());
	void *ssl = OF(void *, SSL_new, void *)(context);
	must(OF(int, SSL_set_fd, void *, int)(ssl, fd) == 1);
	for (int i = 2; i < argc; i++) {
		const char *step = argv[i];
		int number = i + 1 < argc ? atoi(argv[i + 1]) : 0, result = 1;
		char buf[4096];
		errno = 0;
		if (!strcmp(step, "hello")) {
			if (number)
				OF(int, SSL_set_alpn_protos, void *, const char *, unsigned)(ssl, "\2h2", 3);
			result = OF(int, SSL_connect, void *)(ssl);
			i++;
		} else if (!strcmp(step, "ask")) {
			result = OF(int, SSL_write, void *, const void *, int)(
				ssl, "GET /something HTTP/1.1\r\nHost: the.rest\r\n\r\n", 43);
		} else if (!strcmp(step, "read")) {
			for (int left = number; left > 0 && result > 0; left -= result)
				result = OF(int, SSL_read, void *, void *, int)(
					ssl, buf, left < (int)sizeof buf ? left : (int)sizeof buf);
			i++;
		} else if (!strcmp(step, "wait")) {
			usleep((useconds_t)number * 1000);
			i++;
		} else if (!strcmp(step, "end")) {
			result = OF(int, SSL_shutdown, void *)(ssl) >= 0;
		} else {
			must(0);
		}
		printf("%s %s after %d ms\n", step,
			result > 0 ? "done"
			: errno	   ? errno_name(errno)
				   : "failed",
			now_ms() - begin);
		if (result <= 0) {
			if (!errno)
				await_end(fd);
			return 1;
		}
	}
	close(fd);
	return 0;
}
