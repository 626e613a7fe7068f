/* The time left in a stream of any octets (tests/unit/wire_deadline_header_model.h): sent at once and in parts it is
 * the same, the app's counts are its own, and a server reads the same requests, each with the field once and not too
 * large. */
#include "../unit/wire_deadline_header_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 3 || size > 4096)
		return 0;
	/* A copy of exactly that size: a read beyond it is seen. */
	size_t n = size - 3;
	char *bytes = malloc(n ? n : 1);
	if (!bytes)
		abort();
	memcpy(bytes, data + 3, n);
	if (!stream_is_edited_well(bytes, n, data[1] * (uint64_t)data[2], (1u + data[0]) * 2654435761u)) {
		fflush(stdout);
		abort();
	}
	free(bytes);
	return 0;
}
