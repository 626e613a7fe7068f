/* See tcpinfo.h. linux/tcp.h has the fields that libc's header lacks, and cannot be included beside it. */
#include "base/tcpinfo.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/hot.h"
#include "base/sys.h"

static inline bool read_raw(int fd, struct tcp_info *raw, socklen_t *len)
{
	*len = sizeof *raw;
	if (sys_getsockopt(fd, IPPROTO_TCP, TCP_INFO, raw, len) != 0)
		return false;
	if (__builtin_expect(*len < sizeof *raw, 0)) /* an older kernel */
		memset((char *)raw + *len, 0, sizeof *raw - *len);
	return true;
}

static bool has_bytes(socklen_t len)
{
	return len >=
	       offsetof(struct tcp_info, tcpi_bytes_retrans) + sizeof(((struct tcp_info *)0)->tcpi_bytes_retrans);
}

static void take(struct tcpinfo *info, const struct tcp_info *raw, socklen_t len)
{
	*info = (struct tcpinfo){
		.state = raw->tcpi_state,
		.retransmits = raw->tcpi_retransmits,
		.has_bytes = has_bytes(len),
		.unacked = raw->tcpi_unacked,
		.notsent = raw->tcpi_notsent_bytes,
		.last_data_sent_ms = raw->tcpi_last_data_sent,
		.last_data_recv_ms = raw->tcpi_last_data_recv,
		.bytes_sent = raw->tcpi_bytes_sent,
		.bytes_repeated = raw->tcpi_bytes_retrans,
		.bytes_received = raw->tcpi_bytes_received,
	};
}

bool tcpinfo_read(int fd, struct tcpinfo *info)
{
	struct tcp_info raw;
	socklen_t len;
	if (!read_raw(fd, &raw, &len))
		return false;
	take(info, &raw, len);
	return true;
}

HOT_FRAME bool tcpinfo_may_be_used(int fd)
{
	struct tcp_info raw;
	socklen_t len = sizeof raw;
	if (sys_getsockopt(fd, IPPROTO_TCP, TCP_INFO, &raw, &len) != 0 || __builtin_expect(!has_bytes(len), 0))
		return false;
	return raw.tcpi_bytes_sent != 0 || raw.tcpi_bytes_received > 1;
}

uint32_t tcpinfo_unread(int fd)
{
	int n = 0;
	return sys_ioctl(fd, FIONREAD, &n) == 0 && n > 0 ? (uint32_t)n : 0;
}
