/* Framing of HTTP/1 against llhttp alone: two streams, whole, octet by octet, at random, sent in part
 * (tests/unit/wire_http1_oracle.h). The first octet seeds the cuts, the next two say how long the sent stream is. */
#include <stdint.h>

#include "../unit/wire_http1_oracle.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 3 || size > 4096)
		return 0;
	const char *bytes = (const char *)data + 3;
	size_t n = data[1] | (size_t)data[2] << 8, left = size - 3;
	if (n > left)
		n = left;
	if (!streams_agree(bytes, n, bytes + n, left - n, 1u + data[0])) {
		fflush(stdout);
		abort();
	}
	return 0;
}
