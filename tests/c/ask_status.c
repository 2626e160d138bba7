/* Asks the coordinator at a socket for its status, with nothing but include/c/baton_status.h, and prints the answer. */
#include <baton_status.h>

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(int count, char **words) {
    static char message[BATON_MAX_MESSAGE];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct baton_status_question question = {BATON_VERSION, BATON_KIND_STATUS, BATON_ANY_GPU};
    int coordinator = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (count != 2 || coordinator < 0) return 2;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", words[1]);
    if (connect(coordinator, (struct sockaddr *)&address, sizeof address)) return 3;
    if (send(coordinator, &question, sizeof question, 0) != sizeof question) return 4;
    for (uint32_t more = 1; more;) {
        struct baton_status_answer answer;
        ssize_t bytes = recv(coordinator, message, sizeof message, 0);
        if (bytes < (ssize_t)sizeof answer) return 5;
        memcpy(&answer, message, sizeof answer);
        if (answer.version != BATON_VERSION || answer.kind != BATON_KIND_TEXT) return 6;
        if ((size_t)bytes != sizeof answer + answer.length + sizeof more) return 7;
        fwrite(message + sizeof answer, 1, answer.length, stdout);
        memcpy(&more, message + sizeof answer + answer.length, sizeof more);
    }
    close(coordinator);
    return 0;
}
