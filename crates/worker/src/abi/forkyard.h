/*
 * forkyard.h: the worker contract as a C ABI.
 *
 * A runtime that is not written in Rust serves requests through this table of functions. The worker loop calls the
 * runtime once per request with a forkyard_request, which is borrowed: it is valid until the runtime returns. All
 * functions are to be called from the thread that the request was given to. Text is NUL-terminated one byte past its
 * length, so it can be used as a C string where it holds no NUL itself.
 *
 * Dual-licensed MIT or Apache-2.0, as all of forkyard.
 */
#ifndef FORKYARD_H
#define FORKYARD_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows when a function is added at the end; anything else is a new forkyard_api_vN. */
#define FORKYARD_API_VERSION 4

typedef struct forkyard_request forkyard_request;

struct forkyard_text {
    const char *data;
    size_t length;
};

/* Stages that a runtime may set; the worker loop sets the others. */
enum forkyard_stage {
    FORKYARD_STAGE_INFO = 4,
    FORKYARD_STAGE_EXECUTING = 5,
    FORKYARD_STAGE_END = 6
};

/* What the scoreboard shows of a request; empty texts are shown as "-". */
struct forkyard_description {
    struct forkyard_text method;
    struct forkyard_text uri;
    struct forkyard_text query;
    struct forkyard_text script;
    struct forkyard_text user;
    uint64_t content_length; /* bytes */
};

struct forkyard_api {
    uint32_t version; /* FORKYARD_API_VERSION of the library */
    uint32_t size;    /* sizeof(struct forkyard_api) of the library, bytes */

    /* The request's parameters, in the order in which they came. */
    size_t (*param_count)(const forkyard_request *request);
    /* 1, or 0 when there is no such index. */
    int (*param_at)(const forkyard_request *request, size_t index, struct forkyard_text *name,
                    struct forkyard_text *value);
    /* 1, or 0 when there is no such parameter. */
    int (*param)(const forkyard_request *request, const char *name, size_t name_length,
                 struct forkyard_text *value);

    /* The next bytes of the body: how many, 0 at its end, -1 when the client is gone or silent for too long. */
    ptrdiff_t (*read_body)(forkyard_request *request, void *buffer, size_t length);
    /* Output (the CGI response: headers, empty line, body). length, or -1 when the client is gone. */
    ptrdiff_t (*write)(forkyard_request *request, const void *bytes, size_t length);
    /* Text for the web server's error log. length, or -1 when the client is gone. */
    ptrdiff_t (*write_error)(forkyard_request *request, const void *bytes, size_t length);
    /* Send what is buffered. 0, or -1 when the client is gone. */
    int (*flush)(forkyard_request *request);
    /* End the answer now; the runtime may go on working. 0, or -1 when the client is gone. Done by the worker loop
     * where the runtime has not. */
    int (*finish)(forkyard_request *request);
    /* 1 once the answer has ended, else 0. */
    int (*is_finished)(const forkyard_request *request);

    void (*set_stage)(forkyard_request *request, uint32_t stage);
    void (*describe)(forkyard_request *request, const struct forkyard_description *description);
    /* Peak memory of the request, bytes, for the scoreboard. */
    void (*set_memory)(forkyard_request *request, uint64_t bytes);

    /* Since version 2. As finish, for a runtime that is about to return: the connection stays with the worker. */
    int (*end)(forkyard_request *request);

    /* Since version 3. All parameters at once: each name and each value with a NUL behind it. Says how many bytes that is;
     * writes nothing if that is more than there is room for. A parameter with a NUL in it is left out. */
    size_t (*params_packed)(const forkyard_request *request, void *buffer, size_t room);
    /* As read_body, but never waits: FORKYARD_NOT_YET if nothing is there yet. */
    ptrdiff_t (*read_body_now)(forkyard_request *request, void *buffer, size_t length);
    /* The connection's descriptor, to wait until it is readable (more of the body, or the client is gone) and for nothing
     * else; -1 when it is gone. */
    int (*connection)(const forkyard_request *request);
    /* The worker ends after this request, as with max_requests. */
    void (*retire)(forkyard_request *request);
    /* Closes the connection in the middle of the answer: the rest can't be had, and the web server has to see that. */
    void (*break_off)(forkyard_request *request);

    /* Since version 4. Asks for out-of-band work: see forkyard_worker_works. */
    void (*want_work)(forkyard_request *request);
};

#define FORKYARD_NOT_YET (-2)

/* The table; never NULL, valid for the life of the process. */
const struct forkyard_api *forkyard_api_v1(void);

/*
 * A preloader: a process that loads an application once and forks workers from it. The master starts it with a socket as
 * descriptor 3. In this order:
 *
 *   p = forkyard_preloader_begin();           NULL: end the process
 *   forkyard_preloader_settle(p);             before any code of the application runs
 *   ... load the application ...
 *   forkyard_preloader_ready(p, ...);         or forkyard_preloader_failed(p, ...), and end
 *   while (forkyard_preloader_wait(p))
 *       if (forkyard_preloader_fork(p) == 0)
 *           _exit(forkyard_worker_run(p, answer, data));
 *
 * All of it from one thread. What other threads hold at the fork is held in the worker for ever.
 */
typedef struct forkyard_preloader forkyard_preloader;

/* Answers one request. Must not unwind or jump out. */
typedef void (*forkyard_answer)(forkyard_request *request, void *data);

/* Takes the master's first line. NULL: the master is gone or is none; end the process. Once in a process. */
forkyard_preloader *forkyard_preloader_begin(void);
/* The pool's application as JSON, as forkyard.toml has it. Valid as long as the preloader. */
struct forkyard_text forkyard_preloader_application(forkyard_preloader *preloader);
/* Takes on the pool's limits, directories, user and environment. 0, or -1: the master has been told; end the process. */
int forkyard_preloader_settle(forkyard_preloader *preloader);
/* The application is loaded; the version is its runtime's. */
void forkyard_preloader_ready(forkyard_preloader *preloader, const char *version, size_t length);
/* The application can't be loaded; the master logs why. */
void forkyard_preloader_failed(forkyard_preloader *preloader, const char *message, size_t length);
/* Before that, what is in the report besides: 1, what happened; 2, what to do about it; 3, details for developers, such as a
 * backtrace. */
void forkyard_preloader_explain(forkyard_preloader *preloader, int what, const char *text, size_t length);
/*
 * Between forkyard_preloader_ready and the first forkyard_preloader_wait, for languages that can load the application in each
 * worker instead (preload):
 *
 *   if (!forkyard_preloader_expect(p))        0: end the process
 *   ... close what must not be shared ...
 *   forkyard_preloader_renew(p, path, ...);
 */
/* Waits until the master says something, which stays unread: 1. 0: end the process. */
int forkyard_preloader_expect(forkyard_preloader *preloader);
/* With preload = "auto", and if the application has left connections open, the process becomes its interpreter anew, with `path`, of
 * this library, as argument, and the JSON says that preload is "never". Returns if there are none, or if it can't, which is logged. */
void forkyard_preloader_renew(forkyard_preloader *preloader, const char *path, size_t length);
/* A warning for the log. */
void forkyard_preloader_warn(forkyard_preloader *preloader, const char *message, size_t length);
/* Waits until a worker is wanted: 1. 0: end the process. */
int forkyard_preloader_wait(forkyard_preloader *preloader);
/* Makes the worker, as a child of the master: 0 in the worker, its pid in the preloader, -1 if that failed. Fork handlers run
 * (pthread_atfork(3)). */
int forkyard_preloader_fork(forkyard_preloader *preloader);
/* Instead, for a runtime that has to fork by itself: the worker, an orphan that the master inherits, has this pid; below 1:
 * it could not be made. In the preloader only. */
void forkyard_preloader_forked(forkyard_preloader *preloader, int pid);
/* In the worker: serves until it has to end; the exit code. The preloader is gone then. */
int forkyard_worker_run(forkyard_preloader *preloader, forkyard_answer answer, void *data);

/*
 * Instead of forkyard_worker_run, for languages that would rather ask than be called:
 *
 *   w = forkyard_worker_begin(p);             NULL: end the process with code 70
 *   while ((request = forkyard_worker_next(w)))
 *       ... answer it by the functions of the table ...
 *   _exit(forkyard_worker_end(w));
 *
 * All of it from one thread. Others may run meanwhile.
 */
typedef struct forkyard_worker forkyard_worker;

/* In the worker, once. The preloader is gone then, whatever comes of it. */
forkyard_worker *forkyard_worker_begin(forkyard_preloader *preloader);
/* Ends the request before, if there is one, and waits for the next, which is valid until the next call. NULL: there is
 * none any more, unless forkyard_worker_promotes or forkyard_worker_works. */
forkyard_request *forkyard_worker_next(forkyard_worker *worker);
/* The exit code. The worker is gone then. */
int forkyard_worker_end(forkyard_worker *worker);

/* Instead of forkyard_worker_next, for languages that are called after all: serves until the worker has to end (0), or is to make
 * a preloader first (1), or to do out-of-band work first (2). */
int forkyard_worker_serve(forkyard_worker *worker, forkyard_answer answer, void *data);

/*
 * A worker that is to make the next preloader from itself (refork_after). forkyard_worker_serve has returned 1, or
 * forkyard_worker_next NULL and forkyard_worker_promotes 1. In this order:
 *
 *   if (forkyard_worker_fork(w) == 0)
 *       p = forkyard_worker_promoted(w);      NULL: end the process
 *       forkyard_preloader_ready(p, ...);     or forkyard_preloader_failed(p, ...), and end; and on as any preloader
 *   ... on as a worker: the next call says that it has to end, in order ...
 *
 * The process must have no other thread. Whoever can't do it calls forkyard_worker_refuse instead.
 */
int forkyard_worker_promotes(forkyard_worker *worker);
/* Makes the preloader, as a child of the master: 0 in it, its pid in the worker, -1 if that failed. Fork handlers run
 * (pthread_atfork(3)). */
int forkyard_worker_fork(forkyard_worker *worker);
/* Instead, for a runtime that has to fork by itself: the new process, an orphan that the master inherits, has this pid; below 1:
 * it could not be made. In the worker only. */
void forkyard_worker_forked(forkyard_worker *worker, int pid);
/* Whether the worker has connections to servers open, which the preloader's workers would share: 1: there will be none, and the
 * master logs why. */
int forkyard_worker_shares(forkyard_worker *worker);
/* There will be none; the master logs why. In the worker only. */
void forkyard_worker_refuse(forkyard_worker *worker, const char *message, size_t length);
/* In the new process, once. The worker is gone then, whatever comes of it. */
forkyard_preloader *forkyard_worker_promoted(forkyard_worker *worker);

/*
 * Out-of-band work: what an application does between two requests, when no client waits. It asks for it by want_work while it
 * answers one. forkyard_worker_serve returns 2, or forkyard_worker_next NULL and forkyard_worker_works 1, when it is time for it:
 *
 *   ... do it ...
 *   forkyard_worker_worked(w, "", 0);          or what went wrong, which is logged
 *   ... on as a worker ...
 */
int forkyard_worker_works(forkyard_worker *worker);
void forkyard_worker_worked(forkyard_worker *worker, const char *message, size_t length);

/*
 * In a child that the application has forked from a worker: puts /dev/null in place of the listening socket and the
 * worker's other descriptors. If the application returns to forkyard in such a child, the child ends.
 */
void forkyard_worker_leave(void);

/* What the worker writes, and the processes that it starts, are its own from here on, and no longer its preloader's. The first that
 * it calls. */
void forkyard_worker_settle_output(forkyard_preloader *preloader);

/*
 * What a worker is busy with, for the log of slow requests. In the worker, before it serves:
 *
 *   s = forkyard_worker_questions(p, by_signal);      -1: there are no questions
 *
 * The socket is the caller's, does not block, and is to stay open as long as the worker answers. Whatever byte comes on it is a
 * question. Of a runtime that answers by_signal, instead or besides, FORKYARD_QUESTION is one: its handler writes to the socket,
 * and is followed by forkyard_worker_end_answers(s). An answer has a line for each call, the innermost first, and ends
 * with a NUL:
 *
 *     File "/srv/app/shop.py", line 12 in basket
 */
#define FORKYARD_QUESTION 51 /* a signal: SIGRTMIN + 17 */

int forkyard_worker_questions(forkyard_preloader *preloader, int by_signal);
/* The handler that is installed now writes no NUL: let one follow. 0, or -1: there is none. */
int forkyard_worker_end_answers(int socket);

/*
 * A worker that serves several requests at a time, for a language with an event loop. In the worker:
 *
 *   w = forkyard_concurrent_begin(p);          NULL: end the process with code 70
 *   ... watch forkyard_concurrent_descriptor(w); whenever it is readable:
 *       do { more = forkyard_concurrent_turn(w, &events); ... } while (more);      better: let others have their turn between
 *   ... until FORKYARD_EVENT_END ...
 *   _exit(forkyard_worker_end(w));             or, if its request is 1, as forkyard_worker_promotes has it
 *
 * All of it from one thread; nothing waits. What is handed out is valid until the next call for this worker. A request is a
 * number; one whose answer is complete, or that was abandoned, is no more.
 *
 * The events are records, each in the machine's byte order: what it is (32 bits), the length of what follows its head (32 bits), the
 * request (64 bits), and what is said there.
 */
enum forkyard_event {
    /* Lengths of the names and of the values, and 1 if the body is complete (32 bits each); the parameters' names and their
     * values in the same order, each followed by a NUL; what is there of the body. */
    FORKYARD_EVENT_REQUEST = 1,
    /* There is more of the body, for forkyard_concurrent_read. Only after that has said NOT_YET. */
    FORKYARD_EVENT_BODY = 2,
    /* The client is gone. The request goes on until it is answered or abandoned. */
    FORKYARD_EVENT_GONE = 3,
    /* There is room again after FORKYARD_FULL. */
    FORKYARD_EVENT_WRITABLE = 4,
    /* The time of the request is up, and its client was told: it is no more. */
    FORKYARD_EVENT_EXPIRED = 5,
    /* Out-of-band work is to be done now, which forkyard_worker_worked ends. */
    FORKYARD_EVENT_WORK = 6,
    /* No request is left, and none will come. The request's number is 1 if the worker is to make a preloader first. */
    FORKYARD_EVENT_END = 7
};

/* A flag of forkyard_concurrent_send: the answer ends with this piece. */
#define FORKYARD_LAST 1
/* Of its result: the client is gone; else how many bytes were taken, and with them these bits: there is no room, and
 * FORKYARD_EVENT_WRITABLE will tell; and: there are new events. */
#define FORKYARD_GONE (-1)
#define FORKYARD_FULL (INT64_C(1) << 62)
#define FORKYARD_MORE (INT64_C(1) << 61)

/* Instead of forkyard_worker_begin. */
forkyard_worker *forkyard_concurrent_begin(forkyard_preloader *preloader);
/* The descriptor that is readable when something has come up; for nothing else. */
int forkyard_concurrent_descriptor(forkyard_worker *worker);
/* What has come up. Bits of the result: 1: there is more, to be asked for soon although the descriptor need not be readable;
 * 2: there is no room for another request. */
int forkyard_concurrent_turn(forkyard_worker *worker, struct forkyard_text *events);
/* The bytes from `from` on of a piece of an answer that is `length` bytes long. Fewer than all are taken where there is no room:
 * the rest is to be sent again then. */
int64_t forkyard_concurrent_send(forkyard_worker *worker, uint64_t request, const void *bytes, size_t from,
                                 size_t length, uint32_t flags);
/* Text for the web server's error log. */
void forkyard_concurrent_send_error(forkyard_worker *worker, uint64_t request, const char *text, size_t length);
/* The next piece of the body: 1, or 0 for the last; FORKYARD_NOT_YET: FORKYARD_EVENT_BODY will tell; FORKYARD_GONE. */
int forkyard_concurrent_read(forkyard_worker *worker, uint64_t request, struct forkyard_text *piece);
/* The request's answer is not complete and will not be: the connection is closed, so that the web server sees that. */
void forkyard_concurrent_abandon(forkyard_worker *worker, uint64_t request);
/* The listening socket at which the pool's settings want HTTP spoken; -1: there is none. It is the library's. */
int forkyard_concurrent_http(forkyard_worker *worker);
/* Accepts a connection there, which is the caller's; -1: there is none, or it may not speak there; -3: there is no room. */
int forkyard_concurrent_accept(forkyard_worker *worker);
/* A request that came there begins: the worker counts, shows and limits it. `params`: names and values of a FastCGI request in
 * turn, each with a NUL behind it. It ends with forkyard_concurrent_send of a head ("Status: 200\r\n\r\n") as the last piece,
 * or with forkyard_concurrent_abandon; FORKYARD_EVENT_EXPIRED may come before. */
uint64_t forkyard_concurrent_visit(forkyard_worker *worker, const char *params, size_t length);
/* It has become a connection that lasts for as long as both ends want, as a WebSocket does: no time is set for it any more. */
void forkyard_concurrent_endless(forkyard_worker *worker, uint64_t request);
/* A part of the answer to such a request was sent, or the answer has begun: one that sends nothing for a second does not count
 * against the limit of requests. */
void forkyard_concurrent_sent(forkyard_worker *worker, uint64_t request);
/* The worker ends once its requests are answered, as with max_requests. */
void forkyard_concurrent_retire(forkyard_worker *worker);
/* Asks for out-of-band work. */
void forkyard_concurrent_want_work(forkyard_worker *worker);

/*
 * A worker that gives each request to one of several threads of the runtime, for a language that waits in its calls. In the worker:
 *
 *   w = forkyard_threads_begin(p);             NULL: end the process with code 70
 *   ... start as many threads as the application's JSON says ("concurrency"), each of which does
 *       while (forkyard_threads_next(w, &record))
 *           ... answer it ...
 *   while ((wish = forkyard_threads_mind(w)) == 2)
 *       ... do out-of-band work, which forkyard_worker_worked ends ...
 *   ... the threads have ended, but for those that are stuck in a request whose time is up ...
 *   _exit(forkyard_worker_end(w));             or, if the wish was 1, as forkyard_worker_promotes has it
 *
 * forkyard_threads_mind is called from one thread, the others from any, at the same time. What is handed out is valid until the
 * next call that hands out something to the same thread. A request is a number; one whose answer is complete, whose time was up,
 * or that was abandoned, is no more, and what is done with it comes to nothing.
 */
#define FORKYARD_LATER 2 /* a flag of forkyard_threads_send: with the next piece */

forkyard_worker *forkyard_threads_begin(forkyard_preloader *preloader);
/* Waits. 0: end the process; 1: make a preloader first; 2: do out-of-band work, and call it again. */
int forkyard_threads_mind(forkyard_worker *worker);
/* Waits for the next request, with which the one before is over for this thread: 1, and a record as FORKYARD_EVENT_REQUEST. 0: the
 * thread is to end. */
int forkyard_threads_next(forkyard_worker *worker, struct forkyard_text *record);
/* Waits for the next piece of the body: 1, or 0 for the last; FORKYARD_GONE, too, if the client is silent for too long. */
int forkyard_threads_read(forkyard_worker *worker, uint64_t request, struct forkyard_text *piece);
/* As forkyard_concurrent_send, without FORKYARD_MORE. Does not wait. */
int64_t forkyard_threads_send(forkyard_worker *worker, uint64_t request, const void *bytes, size_t from, size_t length,
                              uint32_t flags);
/* Waits, after FORKYARD_FULL, until there is room: 1, or FORKYARD_GONE. */
int forkyard_threads_wait(forkyard_worker *worker, uint64_t request);
/* As those of forkyard_concurrent. */
void forkyard_threads_send_error(forkyard_worker *worker, uint64_t request, const char *text, size_t length);
void forkyard_threads_abandon(forkyard_worker *worker, uint64_t request);
void forkyard_threads_retire(forkyard_worker *worker);
void forkyard_threads_want_work(forkyard_worker *worker);

/* All parameters in one piece: all names, an empty one, and all values in the same order, each followed by a NUL; without those
 * that hold a NUL themselves or have no name. How many bytes that takes; if it is more than length, it has to be asked again
 * with more room. */
size_t forkyard_request_params_packed(const forkyard_request *request, void *buffer, size_t length);
/* As forkyard_preloader_application, for languages that can't take a structure as a result. */
void forkyard_preloader_application_text(forkyard_preloader *preloader, struct forkyard_text *text);

#ifdef __cplusplus
}
#endif

#endif
