/* Octets by sendmmsg and recvmmsg on a stream, four messages of 300 octets a call, over a connection to this very
 * process until 2400 have gone each way: what each first call says, then whether all came, in order. usage: messages */
#include <sys/ioctl.h>

#include "tool.h"

#define MESSAGES 4
#define ALL 2400

static unsigned char sent[ALL], got[ALL];

static struct mmsghdr msgs[MESSAGES];
static struct iovec parts[MESSAGES][2];

/* Messages of 300 octets, in two parts, from `at` on. */
static void lay_out(unsigned char *at, int left)
{
	for (int i = 0; i < MESSAGES; i++)
		for (int j = 0; j < 2; j++) {
			int n = left < 100 + 100 * j ? left : 100 + 100 * j;

			parts[i][j] = (struct iovec){at, (size_t)n};
			at += n;
			left -= n;
			msgs[i].msg_hdr = (struct msghdr){.msg_iov = parts[i], .msg_iovlen = 2};
			msgs[i].msg_len = 0;
		}
}

/* What a call says; how many octets. Nothing of the app's is changed but the lengths. */
static int counted(const char *what, int n, int is_told)
{
	int sum = 0;

	must(n > 0);
	for (int i = 0; i < MESSAGES; i++)
		must(msgs[i].msg_hdr.msg_iov == parts[i] && msgs[i].msg_hdr.msg_iovlen == 2);
	if (is_told)
		printf("%s %d:", what, n);
	for (int i = 0; i < n; i++) {
		sum += (int)msgs[i].msg_len;
		if (is_told)
			printf(" %u", msgs[i].msg_len);
	}
	if (is_told)
		putchar('\n');
	return sum;
}

int main(void)
{
	struct sockaddr_in at = local_address(0);
	socklen_t len = sizeof at;
	int listener = socket(AF_INET, SOCK_STREAM, 0), there = 0, calls = 0, sum;

	must(bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 1) == 0);
	must(getsockname(listener, (struct sockaddr *)&at, &len) == 0);
	int fd = connected(ntohs(at.sin_port)), peer = accept(listener, NULL, NULL);

	must(peer >= 0);
	for (int i = 0; i < ALL; i++)
		sent[i] = (unsigned char)(i * 31 / 7);
	for (int at_octet = 0; at_octet < ALL; at_octet += sum, calls++) {
		lay_out(sent + at_octet, ALL - at_octet);
		sum = counted("sendmmsg", sendmmsg(fd, msgs, MESSAGES, 0), !calls);
	}
	must(recv(peer, got, ALL, MSG_WAITALL) == ALL && memcmp(sent, got, ALL) == 0);
	memset(got, 0, sizeof got);
	must(send(peer, sent, ALL, 0) == ALL && shutdown(peer, SHUT_WR) == 0);
	while (there < ALL)
		must(ioctl(fd, FIONREAD, &there) == 0);
	calls = 0;
	for (int at_octet = 0; at_octet < ALL; at_octet += sum, calls++) {
		lay_out(got + at_octet, ALL - at_octet);
		sum = counted("recvmmsg", recvmmsg(fd, msgs, MESSAGES, 0, NULL), !calls);
	}
	must(memcmp(sent, got, ALL) == 0);
	puts("whole");
	return 0;
}
