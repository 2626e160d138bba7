/* Makes `ioctl` requests of several kinds to files that are not the driver's, also such as look like the driver's own, and
 * prints the results. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static void tell(const char *what, int answer) { printf("%s: %d %s\n", what, answer, answer ? strerror(errno) : ""); }

int main(void) {
    int ends[2], count = -1, null = open("/dev/null", O_RDWR);
    if (null < 0 || pipe(ends) || write(ends[1], "twelve bytes", 12) != 12) return 1;
    tell("bytes to read", ioctl(ends[0], FIONREAD, &count));
    printf("count %d\n", count);
    tell("close on exec, without an argument", ioctl(ends[0], FIOCLEX));
    printf("flags %d\n", fcntl(ends[0], F_GETFD));
    struct winsize size;
    tell("window size of no terminal", ioctl(null, TIOCGWINSZ, &size));
    tell("no such descriptor", ioctl(-1, FIONREAD, &count));
    /* The numbers by which objects of the driver's resource manager are made and freed, and one beside them. */
    char argument[48] = {0};
    for (unsigned call = 0x29; call <= 0x2b; call++) {
        tell("a number of the driver's", ioctl(null, _IOC(_IOC_READ | _IOC_WRITE, 'F', call, call == 0x2b ? 48 : 16), argument));
    }
    return 0;
}
