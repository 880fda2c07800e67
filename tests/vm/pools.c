// Takes from pools that the whole machine shares, for the scene `pools`: terminals, AIO contexts, open files, and memory
// for compiled BPF programs. `take KIND READY GO` takes until nothing more is given, writes how much that was, meets the
// scene at two named pipes and keeps everything until it is told to go on. `one KIND` takes one and says whether it could.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LONGEST_FILTER = 4096, MAX_PROCESSES = 4000 };

static int open_terminal(void) { return open("/dev/ptmx", O_RDWR | O_NOCTTY) < 0 ? errno : 0; }

static int open_file(void) { return open("/dev/null", O_RDONLY) < 0 ? errno : 0; }

static int make_context(void) {
    aio_context_t context = 0;
    return syscall(SYS_io_setup, 512, &context) < 0 ? errno : 0;
}

// The first instruction lets every call pass; the others only take place.
static int add_filter(void) {
    static struct sock_filter steps[LONGEST_FILTER];
    for (int step = 0; step < LONGEST_FILTER; step++)
        steps[step] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {LONGEST_FILTER, steps};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0 ? errno : 0;
}

static const struct kind {
    const char *name;
    int (*take)(void);
    // How many one process takes before the next one begins.
    int each;
} kinds[] = {
    {"terminals", open_terminal, 200},
    {"contexts", make_context, 1 << 20},
    {"files", open_file, 1 << 20},
    {"filters", add_filter, 7},
};

struct result {
    int taken, error;
};

// A process that holds what it took until it is killed. The parent itself takes nothing: a filter would be inherited.
static int start_holder(const struct kind *kind, int answer) {
    int child = fork();
    if (child != 0) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct result result = {0, 0};
    while (result.taken < kind->each && (result.error = kind->take()) == 0) result.taken++;
    if (write(answer, &result, sizeof result) != sizeof result) _exit(1);
    for (;;) pause();
}

static int take_all(const struct kind *kind, const char *ready, const char *go) {
    static int holders[MAX_PROCESSES];
    int answers[2], count = 0, error = 0;
    long taken = 0;
    struct result result;
    char word[16];
    // Opened first: later there may be no file left to open. For reading and writing, so that neither waits.
    int to_scene = open(ready, O_RDWR), from_scene = open(go, O_RDWR);
    if (to_scene < 0 || from_scene < 0 || pipe(answers) != 0) return 2;
    while (count < MAX_PROCESSES) {
        holders[count] = start_holder(kind, answers[1]);
        if (holders[count] < 0) {
            error = errno;
            break;
        }
        count++;
        if (read(answers[0], &result, sizeof result) != sizeof result) return 2;
        taken += result.taken;
        // A process that got some may have met a limit of its own; one that got nothing found the pool empty.
        error = result.error;
        if (result.taken == 0) break;
    }
    printf("%ld %d\n", taken, error);
    fflush(stdout);
    if (write(to_scene, "here\n", 5) != 5 || read(from_scene, word, sizeof word) <= 0) return 3;
    for (int holder = 0; holder < count; holder++) kill(holders[holder], SIGKILL);
    return 0;
}

int main(int count, char **words) {
    for (size_t index = 0; count >= 3 && index < sizeof kinds / sizeof *kinds; index++) {
        const struct kind *kind = &kinds[index];
        if (strcmp(words[2], kind->name) != 0) continue;
        if (strcmp(words[1], "take") == 0 && count == 5) return take_all(kind, words[3], words[4]);
        if (strcmp(words[1], "one") == 0) {
            int error = kind->take();
            printf("%d\n", error);
            return error != 0;
        }
    }
    return 2;
}
