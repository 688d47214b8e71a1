/*
 * timer.c: part of forkyard-php itself. libphp finds these functions here before libc's.
 *
 * For each request PHP sets a timer of the process's CPU time (max_execution_time), clears it at the end, and installs
 * and unblocks the handler of its signal, although nothing has changed. Here the timer keeps running between requests,
 * and the next request's first call uses it again. It is set again once requests have taken SLACK, so a limit takes
 * effect up to 2 * SLACK later. A request's later calls go through. A signal that comes while PHP wants no timer is
 * dropped.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

/* Nanoseconds. */
#define SLACK 50000000

enum timer_state {
    UNKNOWN, /* the kernel's timer is unknown: every call goes through */
    WANTED,  /* it runs, and PHP has set it */
    KEPT     /* it runs, but PHP has cleared it */
};

static bool enabled;
static volatile enum timer_state state;
static time_t limit;
/* The duration of the requests since the kernel's timer was set, and when the present one began. It may have computed
 * while PHP wanted no timer, so every request counts as a whole. */
static int64_t used, begun;
static bool is_first_call;

/* PHP's action of SIGPROF, behind ours; whether ours is installed. */
static struct sigaction action;
static volatile bool is_installed;
static bool is_unblocked;

static int (*next_setitimer)(int, const struct itimerval *, struct itimerval *);
static int (*next_sigaction)(int, const struct sigaction *, struct sigaction *);
static int (*next_sigprocmask)(int, const sigset_t *, sigset_t *);
static int (*next_pthread_sigmask)(int, const sigset_t *, sigset_t *);

#define NEXT(name) (find((void **)&next_##name, #name), next_##name)

static void find(void **function, const char *name)
{
    if (!*function) {
        *function = dlsym(RTLD_NEXT, name);
    }
}

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

/* The next calls go through. A child has no timer; a signal handler that PHP has left by a jump leaves signals blocked. */
void forkyard_timer_forget(void)
{
    state = UNKNOWN;
    is_unblocked = false;
}

/* In a worker that isn't rewound, whose memory would differ from the kernel's state. */
void forkyard_timer_enable(int is_to_enable)
{
    forkyard_timer_forget();
    enabled = is_to_enable && pthread_atfork(NULL, NULL, forkyard_timer_forget) == 0;
}

/* A request has begun. `last`: the duration of the request before it, in nanoseconds. */
void forkyard_timer_begin_request(int64_t now_nanos, int64_t last)
{
    begun = now_nanos;
    used += last;
    is_first_call = true;
}

int setitimer(__itimer_which_t which, const struct itimerval *value, struct itimerval *old)
{
    bool is_once = value && value->it_interval.tv_sec == 0 && value->it_interval.tv_usec == 0;
    if (which != ITIMER_PROF || !enabled || old || !is_once || value->it_value.tv_usec != 0) {
        state = which == ITIMER_PROF ? UNKNOWN : state;
        return NEXT(setitimer)(which, value, old);
    }
    if (value->it_value.tv_sec == 0 && state != UNKNOWN) {
        state = KEPT;
        return 0;
    }
    bool is_first = is_first_call;
    is_first_call = false;
    if (is_first && state == KEPT && limit == value->it_value.tv_sec && used + (now() - begun) < SLACK) {
        state = WANTED;
        return 0;
    }
    struct itimerval longer = *value;
    limit = value->it_value.tv_sec;
    longer.it_value.tv_usec = limit ? 2 * SLACK / 1000 : 0;
    int result = NEXT(setitimer)(which, &longer, NULL);
    /* At its end the present request counts as a whole, so too much is counted, never too little. */
    used = 0;
    state = result == 0 && limit ? WANTED : UNKNOWN;
    return result;
}

static void on_prof(int signal, siginfo_t *info, void *context)
{
    bool is_dropped = state == KEPT && info->si_code == SI_KERNEL;
    state = UNKNOWN;
    if (action.sa_flags & SA_RESETHAND) {
        is_installed = false;
    }
    if (is_dropped) {
        return;
    }
    if (action.sa_flags & SA_SIGINFO) {
        action.sa_sigaction(signal, info, context);
    } else {
        action.sa_handler(signal);
    }
}

static bool is_same(const struct sigaction *a, const struct sigaction *b)
{
    return a->sa_sigaction == b->sa_sigaction && a->sa_flags == b->sa_flags &&
           memcmp(&a->sa_mask, &b->sa_mask, sizeof(uint64_t)) == 0;
}

int sigaction(int signal, const struct sigaction *wanted, struct sigaction *old)
{
    if (signal != SIGPROF || !enabled) {
        return NEXT(sigaction)(signal, wanted, old);
    }
    bool was_installed = is_installed;
    struct sigaction before = action;
    int result = 0;
    if (wanted && wanted->sa_handler != SIG_DFL && wanted->sa_handler != SIG_IGN) {
        if (!was_installed || !is_same(&action, wanted)) {
            struct sigaction ours = *wanted;
            ours.sa_flags |= SA_SIGINFO;
            ours.sa_sigaction = on_prof;
            action = *wanted;
            result = NEXT(sigaction)(signal, &ours, old);
            is_installed = result == 0;
        }
    } else {
        result = NEXT(sigaction)(signal, wanted, old);
        is_installed = was_installed && !wanted;
    }
    if (old && was_installed) {
        *old = before;
    }
    return result;
}

/* Whether this only unblocks SIGPROF, which isn't blocked. */
static bool changes_nothing(int how, const sigset_t *set, const sigset_t *old)
{
    const uint64_t only_prof = UINT64_C(1) << (SIGPROF - 1);
    if (!enabled || !set) {
        return false;
    }
    if (how == SIG_UNBLOCK) {
        if (!old && memcmp(set, &only_prof, sizeof(only_prof)) == 0) {
            bool was_unblocked = is_unblocked;
            is_unblocked = true;
            return was_unblocked;
        }
    } else {
        is_unblocked = is_unblocked && how == SIG_BLOCK && !sigismember(set, SIGPROF);
    }
    return false;
}

int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
    return changes_nothing(how, set, old) ? 0 : NEXT(sigprocmask)(how, set, old);
}

int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
    return changes_nothing(how, set, old) ? 0 : NEXT(pthread_sigmask)(how, set, old);
}
