/* Looks names up, as it is told. usage: lookup HOW NAME [SERVICE]
 * HOW: getaddrinfo[4|6], gethostbyname, gethostbyname2, gethostbyname_r, gethostbyname2_r, gethostbyaddr,
 * gethostbyaddr_r. Says the answer or the error, then the time in ms: "127.0.0.1,127.0.0.2 3", "EAI_AGAIN 300",
 * "TRY_AGAIN 300". */
#include <netdb.h>
#include <stdbool.h>

#include "tool.h"

static void say_addrinfo(const struct addrinfo *list)
{
	char text[64];
	for (const struct addrinfo *a = list; a; a = a->ai_next) {
		const void *at = a->ai_family == AF_INET ? (void *)&((struct sockaddr_in *)a->ai_addr)->sin_addr
							 : (void *)&((struct sockaddr_in6 *)a->ai_addr)->sin6_addr;
		printf("%s%s", a == list ? "" : ",", inet_ntop(a->ai_family, at, text, sizeof text));
	}
}

static const char *gai_name(int error)
{
	static const struct {
		int error;
		const char *name;
	} names[] = {{EAI_AGAIN, "EAI_AGAIN"}, {EAI_FAIL, "EAI_FAIL"}, {EAI_NONAME, "EAI_NONAME"},
		{EAI_NODATA, "EAI_NODATA"}, {EAI_SYSTEM, "EAI_SYSTEM"}, {EAI_SERVICE, "EAI_SERVICE"},
		{EAI_FAMILY, "EAI_FAMILY"}, {EAI_ADDRFAMILY, "EAI_ADDRFAMILY"}};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (names[i].error == error)
			return names[i].name;
	return "?";
}

static const char *host_error_name(int error)
{
	static const char *const names[] = {"0", "HOST_NOT_FOUND", "TRY_AGAIN", "NO_RECOVERY", "NO_DATA"};
	return error >= 0 && error <= 4 ? names[error] : "NETDB_INTERNAL";
}

static void say_host(const struct hostent *h, int error)
{
	char text[64];
	if (!h) {
		printf("%s", host_error_name(error));
		return;
	}
	printf("%s", h->h_name);
	for (char **p = h->h_addr_list; *p; p++)
		printf(",%s", inet_ntop(h->h_addrtype, *p, text, sizeof text));
}

int main(int argc, char **argv)
{
	must(argc >= 3);
	const char *how = argv[1], *name = argv[2], *service = argc > 3 ? argv[3] : NULL;
	bool is_reentrant = strstr(how, "_r");
	struct hostent host, *found = NULL;
	char buf[8192];
	unsigned char address[16];
	int error = 0, family = AF_INET, begin = now_ms(), result = 0;

	errno = 0;
	if (strncmp(how, "getaddrinfo", 11) == 0) {
		struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
			.ai_family = how[11] == '4'   ? AF_INET
				     : how[11] == '6' ? AF_INET6
						      : AF_UNSPEC};
		struct addrinfo *list = NULL;
		result = getaddrinfo(name, service, &hints, &list);
		must(result == EAI_SYSTEM || result != 0 || errno == 0);
		if (result == 0)
			say_addrinfo(list);
		else
			printf("%s", gai_name(result));
		if (result == 0)
			freeaddrinfo(list);
		printf(" %d\n", now_ms() - begin);
		return result != 0;
	}
	if (strncmp(how, "gethostbyaddr", 13) == 0) {
		socklen_t len = inet_pton(AF_INET, name, address) == 1 ? 4 : 16;
		if (len == 16) {
			must(inet_pton(AF_INET6, name, address) == 1);
			family = AF_INET6;
		}
		if (is_reentrant)
			result = gethostbyaddr_r(address, len, family, &host, buf, sizeof buf, &found, &error);
		else
			found = gethostbyaddr(address, len, family);
	} else if (strncmp(how, "gethostbyname2", 14) == 0) {
		if (is_reentrant)
			result = gethostbyname2_r(name, family, &host, buf, sizeof buf, &found, &error);
		else
			found = gethostbyname2(name, family);
	} else if (is_reentrant) {
		result = gethostbyname_r(name, &host, buf, sizeof buf, &found, &error);
	} else {
		found = gethostbyname(name);
	}
	/* Whatever went wrong, the two ways of saying so agree; a result that does not fit is another's test. */
	must(!is_reentrant || !found || result == 0);
	say_host(found, is_reentrant ? error : h_errno);
	printf(" %d\n", now_ms() - begin);
	return !found;
}
