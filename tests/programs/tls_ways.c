/* Two TLS libraries in one program, each with every way that it has to send and to receive (A9). usage: tls_ways PORT
 * SEND:RECEIVE...
 *   OpenSSL's: SEND write, write_ex, early (0-RTT, in the second of two sessions); RECEIVE read, read_ex, peek (and
 * read) GnuTLS's: SEND send, send2, cork (in three pieces), range, file; RECEIVE recv, seq, packet
 *
 * For each a connection, and on it a request of HTTP/1 twice, whose answer is "ok". Says what came of it: how many
 * answers, and the errno at the first that did not come. */
// link: -lssl -lcrypto -l:libgnutls.so.30
#include <fcntl.h>
#include <openssl/ssl.h>
#include <stdbool.h>

#include "tool.h"

/* gnutls.h, as far as it goes. */
struct range {
	size_t low, high;
};
struct datum {
	unsigned char *data;
	unsigned size;
};
int gnutls_init(void **session, unsigned flags);
void gnutls_deinit(void *session);
int gnutls_set_default_priority(void *session);
int gnutls_certificate_allocate_credentials(void **credentials);
int gnutls_credentials_set(void *session, int type, void *credentials);
void gnutls_transport_set_int2(void *session, int in, int out);
int gnutls_handshake(void *session);
ssize_t gnutls_record_send(void *session, const void *buf, size_t n);
ssize_t gnutls_record_send2(void *session, const void *buf, size_t n, size_t pad, unsigned flags);
ssize_t gnutls_record_send_range(void *session, const void *buf, size_t n, const struct range *range);
ssize_t gnutls_record_send_file(void *session, int fd, off_t *offset, size_t n);
void gnutls_record_cork(void *session);
int gnutls_record_uncork(void *session, unsigned flags);
ssize_t gnutls_record_recv(void *session, void *buf, size_t n);
ssize_t gnutls_record_recv_seq(void *session, void *buf, size_t n, unsigned char *seq);
ssize_t gnutls_record_recv_packet(void *session, void **packet);
void gnutls_packet_get(void *packet, struct datum *octets, unsigned char *seq);
void gnutls_packet_deinit(void *packet);

static const char request[] = "GET /something HTTP/1.1\r\nHost: the.rest\r\n\r\n";
#define LENGTH (sizeof request - 1)
/* Is the answer whole? */
static bool is_whole(const char *answer)
{
	return strstr(answer, "\r\n\r\nok\n") != NULL;
}
static bool is(const char *a, const char *b)
{
	return strcmp(a, b) == 0;
}

static int dial(int port)
{
	struct sockaddr_in to = local_address(port);
	int fd = new_socket(0);
	must(connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
	return fd;
}

/* ---- OpenSSL ---- */

static bool openssl_sends(SSL *ssl, const char *how)
{
	size_t gone;
	return is(how, "write_ex") ? SSL_write_ex(ssl, request, LENGTH, &gone) == 1 && gone == LENGTH
				   : SSL_write(ssl, request, LENGTH) == (int)LENGTH;
}

static ssize_t openssl_receives(SSL *ssl, const char *how, char *buf, size_t most)
{
	size_t got;
	if (is(how, "peek") && SSL_peek(ssl, buf, (int)most) <= 0)
		return -1;
	if (is(how, "read_ex"))
		return SSL_read_ex(ssl, buf, most, &got) == 1 ? (ssize_t)got : -1;
	return SSL_read(ssl, buf, (int)most);
}

static SSL_SESSION *kept;
static int keep(SSL *ssl, SSL_SESSION *session)
{
	(void)ssl;
	kept = session;
	return 1;
}

/* The first request goes before the handshake. */
static bool openssl_early(SSL *ssl)
{
	size_t gone;
	must(kept && SSL_set_session(ssl, kept) == 1);
	return SSL_write_early_data(ssl, request, LENGTH, &gone) == 1 && gone == LENGTH && SSL_connect(ssl) == 1 &&
	       SSL_get_early_data_status(ssl) == SSL_EARLY_DATA_ACCEPTED;
}

static int openssl(int port, const char *how, const char *reads, bool is_first)
{
	static SSL_CTX *context;
	char buf[4096];
	int answers = 0, fd = dial(port);
	if (!context) {
		context = SSL_CTX_new(TLS_client_method());
		SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
		SSL_CTX_sess_set_new_cb(context, keep);
	}
	SSL *ssl = SSL_new(context);
	must(SSL_set_fd(ssl, fd) == 1);
	bool is_early = is(how, "early") && !is_first;
	if (is_early)
		must(openssl_early(ssl));
	else
		must(SSL_connect(ssl) == 1);
	for (; answers < 2; answers++) {
		errno = 0;
		if ((answers > 0 || !is_early) && !openssl_sends(ssl, how))
			break;
		memset(buf, 0, sizeof buf);
		for (size_t got = 0; !is_whole(buf);) {
			ssize_t n = openssl_receives(ssl, reads, buf + got, sizeof buf - 1 - got);
			if (n <= 0)
				goto out;
			got += (size_t)n;
		}
	}
out:;
	int why = errno;
	SSL_shutdown(ssl);
	SSL_free(ssl);
	close(fd);
	errno = why;
	return answers;
}

/* ---- GnuTLS ---- */

static bool gnutls_sends(void *session, const char *how)
{
	const struct range range = {LENGTH, LENGTH + 100};
	if (is(how, "send2"))
		return gnutls_record_send2(session, request, LENGTH, 50, 0) == (ssize_t)LENGTH;
	if (is(how, "range"))
		return gnutls_record_send_range(session, request, LENGTH, &range) == (ssize_t)LENGTH;
	if (is(how, "cork")) {
		gnutls_record_cork(session);
		for (size_t at = 0, n; at < LENGTH; at += n) {
			n = LENGTH - at < 20 ? LENGTH - at : 20;
			must(gnutls_record_send(session, request + at, n) == (ssize_t)n);
		}
		return gnutls_record_uncork(session, 1) == (int)LENGTH;
	}
	if (is(how, "file")) {
		char path[] = "/tmp/tls_ways.XXXXXX";
		off_t at = 0;
		int fd = mkstemp(path);
		must(fd >= 0 && unlink(path) == 0 && write(fd, request, LENGTH) == (ssize_t)LENGTH);
		must(lseek(fd, 0, SEEK_SET) == 0);
		bool is_gone = gnutls_record_send_file(session, fd, &at, LENGTH) == (ssize_t)LENGTH;
		int why = errno;
		close(fd);
		errno = why;
		return is_gone;
	}
	return gnutls_record_send(session, request, LENGTH) == (ssize_t)LENGTH;
}

static ssize_t gnutls_receives(void *session, const char *how, char *buf, size_t most)
{
	unsigned char seq[8];
	void *packet;
	if (is(how, "seq"))
		return gnutls_record_recv_seq(session, buf, most, seq);
	if (!is(how, "packet"))
		return gnutls_record_recv(session, buf, most);
	ssize_t n = gnutls_record_recv_packet(session, &packet);
	if (n > 0) {
		struct datum octets;
		gnutls_packet_get(packet, &octets, NULL);
		must(octets.size == (unsigned)n && (size_t)n <= most);
		memcpy(buf, octets.data, octets.size);
		gnutls_packet_deinit(packet);
	}
	return n;
}

static int gnutls(int port, const char *how, const char *reads)
{
	static void *credentials;
	void *session;
	char buf[4096];
	int answers = 0, fd = dial(port);
	if (!credentials)
		must(gnutls_certificate_allocate_credentials(&credentials) == 0);
	must(gnutls_init(&session, 2) == 0 && gnutls_set_default_priority(session) == 0 &&
		gnutls_credentials_set(session, 1, credentials) == 0);
	gnutls_transport_set_int2(session, fd, fd);
	must(gnutls_handshake(session) == 0);
	for (; answers < 2; answers++) {
		errno = 0;
		if (!gnutls_sends(session, how))
			break;
		memset(buf, 0, sizeof buf);
		for (size_t got = 0; !is_whole(buf);) {
			ssize_t n = gnutls_receives(session, reads, buf + got, sizeof buf - 1 - got);
			if (n == -28 || n == -52)
				continue; /* again, or interrupted: a ticket came */
			if (n <= 0)
				goto out;
			got += (size_t)n;
		}
	}
out:;
	int why = errno;
	gnutls_deinit(session);
	close(fd);
	errno = why;
	return answers;
}

int main(int argc, char **argv)
{
	must(argc > 2);
	for (int i = 2; i < argc; i++) {
		char how[20] = "";
		const char *reads = strchr(argv[i], ':');
		must(reads && (size_t)(reads - argv[i]) < sizeof how);
		memcpy(how, argv[i], (size_t)(reads++ - argv[i]));
		bool is_openssl = *reads == 'p' ? is(reads, "peek") : is(reads, "read") || is(reads, "read_ex");
		if (is(how, "early"))
			must(is_openssl && openssl(atoi(argv[1]), how, reads, true) == 2);
		int answers =
			is_openssl ? openssl(atoi(argv[1]), how, reads, false) : gnutls(atoi(argv[1]), how, reads);
		printf("%s %d%s%s\n", argv[i], answers, answers < 2 ? " " : "", answers < 2 ? errno_name(errno) : "");
	}
	return 0;
}
