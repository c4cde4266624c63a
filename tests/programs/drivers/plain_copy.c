/* Copies a file in small pieces, through read, write, pread, pwrite and stdio: plain_copy FROM TO */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

enum { PIECE = 100 };

int main(int argc, char **argv)
{
	char piece[PIECE];
	ssize_t got, second;
	off_t at = 0;

	if (argc != 3)
		return 2;
	int from = open(argv[1], O_RDONLY), to = open(argv[2], O_RDWR | O_CREAT | O_TRUNC, 0644);
	if (from < 0 || to < 0) {
		perror("open");
		return 1;
	}
	while ((got = read(from, piece, PIECE)) > 0) {
		if (write(to, piece, (size_t)got) != got)
			return 1;
		second = pread(to, piece, PIECE, at);
		if (second != got || pwrite(to, piece, (size_t)second, at) != second)
			return 1;
		at += got;
	}
	FILE *again = fdopen(to, "r+");
	if (got < 0 || again == NULL || fseek(again, 0, SEEK_SET) != 0)
		return 1;
	long bytes = 0;
	while (fgetc(again) != EOF)
		bytes++;
	printf("copied %ld bytes as user %d\n", bytes, (int)geteuid());
	return fclose(again) == 0 ? 0 : 1;
}
