/* Turns of any octets (wire/records.h): at once and octet by octet they end in the same state, and what is lost stays
 * lost. The first octet is the kind; then turns: one octet of direction (its highest bit: sent) and length less one. */
#include "wire/records.h"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct records r, slow;
	enum records_at was = RECORDS_AWAITED;

	if (size == 0)
		return 0;
	records_init(&r, data[0] % 4);
	records_init(&slow, data[0] % 4);
	for (size_t i = 1; i < size;) {
		int is_sent = data[i] & 0x80;
		size_t n = (data[i++] & 0x7f) + 1u;
		if (n > size - i)
			n = size - i;
		/* A copy of exactly that size: a read beyond it is seen. */
		uint8_t *bytes = malloc(n ? n : 1);
		claim(bytes);
		memcpy(bytes, data + i, n);
		(void)records_of_client(bytes, n);
		(void)records_of_server(bytes, n);
		if (is_sent)
			records_sent(&r, bytes, n);
		else
			claim(records_received(&r, bytes, n) == records_now(&r));
		for (size_t k = 0; k < n; k++) {
			if (is_sent)
				records_sent(&slow, bytes + k, 1);
			else
				records_received(&slow, bytes + k, 1);
		}
		free(bytes);
		claim(memcmp(&r, &slow, sizeof r) == 0);
		claim(was != RECORDS_LOST || records_now(&r) == RECORDS_LOST);
		was = records_now(&r);
		i += n;
	}
	return 0;
}
