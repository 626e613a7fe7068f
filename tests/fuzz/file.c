/* A file in a region's place: a right one of any capacity, its length off by what the input says, with patches of
 * (offset 2, length 1, bytes) in it. It is opened or refused, and looked at when it is opened. */
#include <sys/stat.h>

#include "base/clock.h"
#include "core/circuit.h"
#include "core/region.h"
#include "core/registry.h"
#include "fuzz.h"

#define BYTES 65536 /* that are written; the rest of a file is zeros */

static char path[64];
static struct region_header right;

static void remove_file(void)
{
	unlink(path);
}

static void prepare(void)
{
	struct region r;
	int why;
	umask(077);
	snprintf(path, sizeof path, "resil-fuzz-%d", (int)getpid());
	claim(region_attach(&r, "/dev/shm", path, "fuzz", 3, &why) == 0 && r.is_shared);
	memcpy(&right, r.header, sizeof right);
	memcpy(path, r.path, sizeof path - 1);
	region_close(&r);
	atexit(remove_file);
}

static void write_file(const uint8_t *bytes, size_t n, off_t length)
{
	FILE *f = fopen(path, "w");
	claim(f && fwrite(bytes, 1, n, f) == n && fclose(f) == 0);
	claim(truncate(path, length) == 0);
}

static void look(const struct region *r)
{
	static struct circuit_view view;
	char why_at[200] = "";
	struct text why = TEXT_ON(why_at);
	claim(region_valid(r, &why) == (why.len == 0));
	for (int i = registry_next(r, 0); i >= 0; i = registry_next(r, (uint32_t)i + 1))
		circuit_view(r, (uint32_t)i, clock_now_ns(), &view);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t bytes[BYTES];
	struct region_header h;
	struct region r;
	if (size < 4)
		return 0;
	if (!path[0])
		prepare();
	h = right;
	h.capacity = data[0] | (uint32_t)(data[1] & 1) << 8;
	h.size = region_size(h.capacity);
	off_t length = (off_t)h.size + (int8_t)data[2] * (data[1] & 2 ? 1 : 4096);
	if (length < 0)
		length = 0;
	memset(bytes, 0, sizeof bytes);
	memcpy(bytes, &h, sizeof h);
	data += 3;
	for (size -= 3; size > 3;) {
		size_t at = (size_t)(data[0] | data[1] << 8), n = data[2] % 33;
		data += 3;
		size -= 3;
		if (n > size)
			n = size;
		if (n > BYTES - at)
			n = BYTES - at;
		memcpy(bytes + at, data, n);
		data += n;
		size -= n;
	}
	write_file(bytes, length < BYTES ? (size_t)length : BYTES, length);
	int err = region_open(&r, path, false);
	claim(err <= 0 && (err == 0) == (r.header != NULL));
	if (err == 0) {
		claim(r.capacity >= 1 && r.capacity <= REGION_CAPACITY_MAX && r.size == (size_t)length);
		look(&r);
		region_close(&r);
	}
	return 0;
}
