/* One TLS object for two connections, the first of which stays open in the midst of its answer: what the second says is
 * not the first's. Each question is an octet, and so is its answer but for the first, which has two; of what is asked
 * with 'n' there is none, and on a third connection 'd' has one octet after another. usage: tls_again PORT WAIT-MS,
 * longer than the limit of an answer; it says what the reads of those came to. */
// link: -lssl -lcrypto
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "tool.h"

static int connects(SSL *ssl, int port)
{
	int fd = connected(port);

	must(SSL_clear(ssl) && SSL_set_fd(ssl, fd) && SSL_connect(ssl) == 1);
	return fd;
}

static void asks(SSL *ssl, const char *question, char answer)
{
	char c;

	must(SSL_write(ssl, question, 1) == 1);
	must(SSL_read(ssl, &c, 1) == 1 && c == answer);
}

static void read_to_its_end(SSL *ssl)
{
	int result, octets = 0;
	char c;

	ERR_clear_error();
	while ((result = SSL_read(ssl, &c, 1)) == 1)
		octets++;
	unsigned long why = ERR_peek_error();
	printf("%s: %d %s\n", octets ? "some" : "none", result,
		ERR_SYSTEM_ERROR(why) ? errno_name(ERR_GET_REASON(why)) : "-");
}

int main(int argc, char **argv)
{
	must(argc == 3);
	int port = atoi(argv[1]), wait_ms = atoi(argv[2]);
	SSL *ssl = SSL_new(SSL_CTX_new(TLS_client_method()));
	char c;

	must(ssl);
	int first = connects(ssl, port);
	asks(ssl, "f", '1');
	must(SSL_read(ssl, &c, 1) == 1 && c == '2');
	int second = connects(ssl, port);
	must(second != first);
	asks(ssl, "a", 'a');
	/* Answered, for all that is known; then a read of the next call's. */
	usleep((useconds_t)wait_ms * 1000);
	asks(ssl, "b", 'b');
	asks(ssl, "c", 'c');
	must(SSL_write(ssl, "n", 1) == 1);
	read_to_its_end(ssl);
	int third = connects(ssl, port);
	must(SSL_write(ssl, "d", 1) == 1);
	read_to_its_end(ssl);
	must(close(first) == 0 && close(second) == 0 && close(third) == 0);
	return 0;
}
