/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The floor of ipc/call: two processes, a Unix stream socket, 64 bytes each way, nothing else. Prints nanoseconds a
 * round trip.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int fd[2], n = argc > 1 ? atoi(argv[1]) : 20000;
	char buf[64] = {0};
	struct timespec a, b;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd))
		return 1;
	if (fork() == 0) {
		close(fd[0]);
		while (read(fd[1], buf, sizeof(buf)) == sizeof(buf))
			if (write(fd[1], buf, sizeof(buf)) != sizeof(buf))
				break;
		_exit(0);
	}
	close(fd[1]);
	clock_gettime(CLOCK_MONOTONIC, &a);
	for (int i = 0; i < n; i++)
		if (write(fd[0], buf, sizeof(buf)) != sizeof(buf) || read(fd[0], buf, sizeof(buf)) != sizeof(buf))
			return 1;
	clock_gettime(CLOCK_MONOTONIC, &b);
	printf("%.0f\n", ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / n);
	return 0;
}
