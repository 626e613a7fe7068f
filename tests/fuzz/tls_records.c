/* Turns of any octets (wire/tls_records.h): at once and octet by octet they end in the same state and tell the same; a
 * send taken back in part leaves what that part alone would; what is lost stays lost. Turns: one octet of direction
 * (its highest bit: sent) and length less one, 8 times that where the second highest is set. */
#include "wire/tls_records.h"

#include "fuzz.h"

static unsigned feed(struct tls_records *t, int is_sent, uint8_t *bytes, size_t n)
{
	struct iovec one = {bytes, n};
	struct tls_mark mark;
	return is_sent ? tls_records_announce(t, &one, 1, n, &mark) : tls_records_received(t, &one, 1, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tls_records t, slow, back;
	unsigned was = 0;

	tls_records_init(&t);
	tls_records_init(&slow);
	for (size_t i = 0; i < size;) {
		int is_sent = data[i] & 0x80;
		size_t n = ((data[i] & 0x3f) + 1u) * (data[i] & 0x40 ? 8 : 1);
		i++;
		if (n > size - i)
			n = size - i;
		if (n == 0)
			break;
		/* A copy of exactly that size: a read beyond it is seen. */
		uint8_t *bytes = malloc(n);
		claim(bytes);
		memcpy(bytes, data + i, n);
		back = t;
		unsigned told = feed(&t, is_sent, bytes, n), slowly = 0;
		for (size_t k = 0; k < n; k++)
			slowly |= feed(&slow, is_sent, bytes + k, 1);
		claim((told & TLS_LOST) == (slowly & TLS_LOST));
		if (!(told & TLS_LOST)) {
			claim(told == slowly && memcmp(&t, &slow, sizeof t) == 0);
			claim(t.name_length <= TLS_NAME_MAX);
			if (is_sent && n > 1) {
				struct iovec one = {bytes, n};
				struct tls_mark mark;
				tls_records_announce(&back, &one, 1, n, &mark);
				tls_records_sent_only(&back, &one, 1, n / 2, &mark);
				feed(&back, 1, bytes + n / 2, n - n / 2);
				claim(memcmp(&t, &back, sizeof t) == 0);
			}
		}
		claim(!(was & TLS_LOST) || told & TLS_LOST);
		was |= told;
		free(bytes);
		i += n;
	}
	return 0;
}
