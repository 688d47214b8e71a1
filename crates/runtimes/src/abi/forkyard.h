/*
 * forkyard.h: the worker as a C ABI.
 *
 * A runtime in any language serves requests through this table of functions. The worker loop calls the runtime once
 * per request. The forkyard_request is borrowed: it is valid until the runtime returns, and only in the thread that
 * received it. Texts have a NUL after their length, so they are C strings unless they contain a NUL themselves.
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

/* Increases when functions are appended; any other change is a new forkyard_api_vN. */
#define FORKYARD_API_VERSION 4

typedef struct forkyard_request forkyard_request;

struct forkyard_text {
    const char *data;
    size_t length;
};

/* Stages that a runtime may set. The worker loop sets the others. */
enum forkyard_stage {
    FORKYARD_STAGE_INFO = 4,
    FORKYARD_STAGE_EXECUTING = 5,
    FORKYARD_STAGE_END = 6
};

/* A request as the scoreboard shows it. Empty texts are shown as "-". */
struct forkyard_description {
    struct forkyard_text method;
    struct forkyard_text uri;
    struct forkyard_text query;
    struct forkyard_text script;
    struct forkyard_text user;
    uint64_t content_length; /* bytes */
};

struct forkyard_api {
    uint32_t version; /* the library's FORKYARD_API_VERSION */
    uint32_t size;    /* the library's sizeof(struct forkyard_api), in bytes */

    /* The number of parameters. They are in order of arrival. */
    size_t (*param_count)(const forkyard_request *request);
    /* Returns 1, or 0 if there is no such index. */
    int (*param_at)(const forkyard_request *request, size_t index, struct forkyard_text *name,
                    struct forkyard_text *value);
    /* Returns 1, or 0 if there is no such parameter. */
    int (*param)(const forkyard_request *request, const char *name, size_t name_length,
                 struct forkyard_text *value);

    /* Reads from the body. Returns the number of bytes, 0 at the end, or -1 if the client is gone or timed out. */
    ptrdiff_t (*read_body)(forkyard_request *request, void *buffer, size_t length);
    /* Writes part of the CGI response (headers, empty line, body). Returns length, or -1 if the client is gone. */
    ptrdiff_t (*write)(forkyard_request *request, const void *bytes, size_t length);
    /* Writes to the web server's error log. Returns length, or -1 if the client is gone. */
    ptrdiff_t (*write_error)(forkyard_request *request, const void *bytes, size_t length);
    /* Flushes buffered output. Returns 0, or -1 if the client is gone. */
    int (*flush)(forkyard_request *request);
    /* Ends the answer while the runtime continues. Optional: the worker loop ends it otherwise. Returns 0, or -1 if
     * the client is gone. */
    int (*finish)(forkyard_request *request);
    /* Returns 1 if the answer has ended. */
    int (*is_finished)(const forkyard_request *request);

    void (*set_stage)(forkyard_request *request, uint32_t stage);
    void (*describe)(forkyard_request *request, const struct forkyard_description *description);
    /* Peak memory of the request in bytes, for the scoreboard. */
    void (*set_memory)(forkyard_request *request, uint64_t bytes);

    /* Since version 2. finish for a runtime that is about to return: the connection stays with the worker. */
    int (*end)(forkyard_request *request);

    /* Since version 3. Writes all names and values, each followed by NUL, and returns their total length. Writes
     * nothing if they don't fit. Omits parameters that contain a NUL. */
    size_t (*params_packed)(const forkyard_request *request, void *buffer, size_t room);
    /* read_body without waiting: returns FORKYARD_NOT_YET if there is no data. */
    ptrdiff_t (*read_body_now)(forkyard_request *request, void *buffer, size_t length);
    /* The connection's descriptor, only for waiting until it is readable (body data, or the client is gone); -1
     * after it was closed. */
    int (*connection)(const forkyard_request *request);
    /* Makes the worker exit after this request, as max_requests does. */
    void (*retire)(forkyard_request *request);
    /* Closes the connection mid-answer, so that the web server sees an incomplete answer. */
    void (*break_off)(forkyard_request *request);

    /* Since version 4. Requests out-of-band work; see forkyard_worker_works. */
    void (*want_work)(forkyard_request *request);
};

#define FORKYARD_NOT_YET (-2)

/* The table. Never NULL; static. */
const struct forkyard_api *forkyard_api_v1(void);

/*
 * A preloader: a process that loads an application once and forks workers. The master starts it with a socket as
 * descriptor 3. Call in this order:
 *
 *   p = forkyard_preloader_begin();           NULL: exit
 *   forkyard_preloader_settle(p);             before any application code runs
 *   ... load the application ...
 *   forkyard_preloader_ready(p, ...);         or forkyard_preloader_failed(p, ...), then exit
 *   while (forkyard_preloader_wait(p))
 *       if (forkyard_preloader_fork(p) == 0)
 *           _exit(forkyard_worker_run(p, answer, data));
 *
 * Use one thread. Locks that other threads hold during the fork stay locked in the worker.
 */
typedef struct forkyard_preloader forkyard_preloader;

/* Answers one request. Must return normally, without unwinding or longjmp. */
typedef void (*forkyard_answer)(forkyard_request *request, void *data);

/* Reads the master's first line. NULL: the master is gone or the line is invalid; exit. Call it once. */
forkyard_preloader *forkyard_preloader_begin(void);
/* The pool's application as JSON, as in forkyard.toml. Valid as long as the preloader. */
struct forkyard_text forkyard_preloader_application(forkyard_preloader *preloader);
/* Applies the pool's limits, directories, user and environment. Returns 0, or -1 after reporting a failure; exit
 * then. */
int forkyard_preloader_settle(forkyard_preloader *preloader);
/* Reports that the application is loaded. version: that of the runtime. */
void forkyard_preloader_ready(forkyard_preloader *preloader, const char *version, size_t length);
/* Reports that the application can't be loaded; the master logs the message. */
void forkyard_preloader_failed(forkyard_preloader *preloader, const char *message, size_t length);
/* Adds to that report, before it is sent: 1, what happened; 2, what to do; 3, details for developers, such as a
 * backtrace. */
void forkyard_preloader_explain(forkyard_preloader *preloader, int what, const char *text, size_t length);
/*
 * For languages that can load the application in each worker instead (preload), between forkyard_preloader_ready and
 * the first forkyard_preloader_wait:
 *
 *   if (!forkyard_preloader_expect(p))        0: exit
 *   ... close what must not be shared ...
 *   forkyard_preloader_renew(p, path, ...);
 */
/* Waits for a command without reading it. Returns 1, or 0: exit. */
int forkyard_preloader_expect(forkyard_preloader *preloader);
/* With preload = "auto" and open connections of the application: re-executes the interpreter with `path` (of this
 * library) as argument; its JSON then has preload "never". Returns if there are no connections, or after logging an
 * error. */
void forkyard_preloader_renew(forkyard_preloader *preloader, const char *path, size_t length);
/* Logs a warning. */
void forkyard_preloader_warn(forkyard_preloader *preloader, const char *message, size_t length);
/* Waits until a worker is wanted. Returns 1, or 0: exit. */
int forkyard_preloader_wait(forkyard_preloader *preloader);
/* Forks the worker as a child of the master. Returns 0 in the worker and its pid in the preloader, or -1 on failure.
 * Runs fork handlers (pthread_atfork(3)). */
int forkyard_preloader_fork(forkyard_preloader *preloader);
/* In the preloader of a runtime that forks itself: reports the worker's pid, or a failure if it is below 1. The
 * worker must be an orphan, which the master inherits. */
void forkyard_preloader_forked(forkyard_preloader *preloader, int pid);
/* In the worker: serves requests and returns the exit code. Frees the preloader. */
int forkyard_worker_run(forkyard_preloader *preloader, forkyard_answer answer, void *data);

/*
 * Replaces forkyard_worker_run in languages that avoid callbacks:
 *
 *   w = forkyard_worker_begin(p);             NULL: exit with code 70
 *   while ((request = forkyard_worker_next(w)))
 *       ... answer it with the table's functions ...
 *   _exit(forkyard_worker_end(w));
 *
 * Use one thread. Other threads may run.
 */
typedef struct forkyard_worker forkyard_worker;

/* Call it once in the worker. Frees the preloader in any case. */
forkyard_worker *forkyard_worker_begin(forkyard_preloader *preloader);
/* Ends the current request and waits for the next, which is valid until the next call. NULL: no more requests,
 * unless forkyard_worker_promotes or forkyard_worker_works returns 1. */
forkyard_request *forkyard_worker_next(forkyard_worker *worker);
/* Returns the exit code. Frees the worker. */
int forkyard_worker_end(forkyard_worker *worker);

/* Replaces forkyard_worker_next with callbacks. Returns 0 to exit, 1 to create a preloader first, or 2 to do
 * out-of-band work first. */
int forkyard_worker_serve(forkyard_worker *worker, forkyard_answer answer, void *data);

/*
 * A worker that creates the next preloader from itself (refork_after): forkyard_worker_serve returned 1, or
 * forkyard_worker_next returned NULL and forkyard_worker_promotes 1. Call in this order:
 *
 *   if (forkyard_worker_fork(w) == 0)
 *       p = forkyard_worker_promoted(w);      NULL: exit
 *       forkyard_preloader_ready(p, ...);     or forkyard_preloader_failed(p, ...), then exit; continue as a preloader
 *   ... continue as a worker: the next call makes it exit normally ...
 *
 * The process must have no other thread. If that is impossible, call forkyard_worker_refuse instead.
 */
int forkyard_worker_promotes(forkyard_worker *worker);
/* Forks the preloader as a child of the master. Returns 0 in it and its pid in the worker, or -1 on failure. Runs
 * fork handlers (pthread_atfork(3)). */
int forkyard_worker_fork(forkyard_worker *worker);
/* In the worker of a runtime that forks itself: reports the preloader's pid, or a failure if it is below 1. The
 * process must be an orphan, which the master inherits. */
void forkyard_worker_forked(forkyard_worker *worker, int pid);
/* Returns 1 if the worker has open connections to servers, which the preloader's workers would share. Then there
 * will be no preloader, and the master logs the reason. */
int forkyard_worker_shares(forkyard_worker *worker);
/* In the worker: rejects the promotion; the master logs the message. */
void forkyard_worker_refuse(forkyard_worker *worker, const char *message, size_t length);
/* Call it once in the new process. Frees the worker in any case. */
forkyard_preloader *forkyard_worker_promoted(forkyard_worker *worker);

/*
 * Out-of-band work: work of an application between two requests, while no client waits. The application asks for it
 * with want_work during a request. When it is time, forkyard_worker_serve returns 2, or forkyard_worker_next returns
 * NULL and forkyard_worker_works 1:
 *
 *   ... do it ...
 *   forkyard_worker_worked(w, "", 0);          or an error message for the log
 *   ... continue as a worker ...
 */
int forkyard_worker_works(forkyard_worker *worker);
void forkyard_worker_worked(forkyard_worker *worker, const char *message, size_t length);

/*
 * In a child that the application forked from a worker: replaces the listening socket and the worker's other
 * descriptors with /dev/null. If the application returns to forkyard in such a child, the child exits.
 */
void forkyard_worker_leave(void);

/* Separates the worker's output and its child processes from the preloader's. Call it first in a worker. */
void forkyard_worker_settle_output(forkyard_preloader *preloader);

/*
 * Questions about what a worker is doing, for the log of slow requests. In the worker, before it serves:
 *
 *   s = forkyard_worker_questions(p, by_signal);      -1: there are no questions
 *
 * The caller owns the socket. It is non-blocking and must stay open while the worker answers. Each byte received is
 * a question. With by_signal, the signal FORKYARD_QUESTION is one too: install a handler that writes to the socket,
 * then call forkyard_worker_end_answers(s). An answer has one line per call, innermost first, and ends with NUL:
 *
 *     File "/srv/app/shop.py", line 12 in basket
 */
#define FORKYARD_QUESTION 51 /* a signal: SIGRTMIN + 17 */

int forkyard_worker_questions(forkyard_preloader *preloader, int by_signal);
/* Makes the installed handler, which writes no NUL, end each answer with one. Returns 0, or -1 if there is no
 * handler. */
int forkyard_worker_end_answers(int socket);

/*
 * A worker that serves several requests at a time, for languages with an event loop. In the worker:
 *
 *   w = forkyard_concurrent_begin(p);          NULL: exit with code 70
 *   ... watch forkyard_concurrent_descriptor(w); whenever it is readable:
 *       do { more = forkyard_concurrent_turn(w, &events); ... } while (more);      ideally with other work in between
 *   ... until FORKYARD_EVENT_END ...
 *   _exit(forkyard_worker_end(w));             or, if its request is 1, see forkyard_worker_promotes
 *
 * Use one thread; no call blocks. Returned memory is valid until the next call for this worker. A request is a
 * number, which becomes invalid when its answer is complete or abandoned.
 *
 * Events are records in native byte order: kind (32 bits), length of the data (32 bits), request (64 bits), data.
 */
enum forkyard_event {
    /* The lengths of names and values, and 1 if the body is complete (32 bits each); all names and then all values,
     * each followed by NUL; the body so far. */
    FORKYARD_EVENT_REQUEST = 1,
    /* forkyard_concurrent_read has more. Sent only after that returned NOT_YET. */
    FORKYARD_EVENT_BODY = 2,
    /* The client is gone. The request lasts until it is answered or abandoned. */
    FORKYARD_EVENT_GONE = 3,
    /* There is room again after FORKYARD_FULL. */
    FORKYARD_EVENT_WRITABLE = 4,
    /* The request timed out and was answered; it is no longer valid. */
    FORKYARD_EVENT_EXPIRED = 5,
    /* Do out-of-band work, then call forkyard_worker_worked. */
    FORKYARD_EVENT_WORK = 6,
    /* No request is left, and none will come. The request is 1 if the worker should create a preloader first. */
    FORKYARD_EVENT_END = 7
};

/* Flag of forkyard_concurrent_send: this piece ends the answer. */
#define FORKYARD_LAST 1
/* Its result: GONE if the client is gone, otherwise the number of bytes accepted with these bits: FULL, there is no
 * room until FORKYARD_EVENT_WRITABLE; MORE, there are new events. */
#define FORKYARD_GONE (-1)
#define FORKYARD_FULL (INT64_C(1) << 62)
#define FORKYARD_MORE (INT64_C(1) << 61)

/* Replaces forkyard_worker_begin. */
forkyard_worker *forkyard_concurrent_begin(forkyard_preloader *preloader);
/* Readable if there are events. Only for waiting. */
int forkyard_concurrent_descriptor(forkyard_worker *worker);
/* Returns events. Bits of the result: 1, there are more, so call it again soon even if the descriptor is not
 * readable; 2, there is no room for another request. */
int forkyard_concurrent_turn(forkyard_worker *worker, struct forkyard_text *events);
/* Sends the bytes after `from` of a piece with `length` bytes. If there is not enough room, send the rest again
 * later. */
int64_t forkyard_concurrent_send(forkyard_worker *worker, uint64_t request, const void *bytes, size_t from,
                                 size_t length, uint32_t flags);
/* Writes to the web server's error log. The result is that of forkyard_concurrent_send, without FORKYARD_MORE: if there is
 * not enough room, write the rest again later. */
int64_t forkyard_concurrent_send_error(forkyard_worker *worker, uint64_t request, const char *text,
                                       size_t length);
/* Reads the next piece of the body. Returns 1, 0 for the last piece, FORKYARD_NOT_YET (wait for FORKYARD_EVENT_BODY)
 * or FORKYARD_GONE. */
int forkyard_concurrent_read(forkyard_worker *worker, uint64_t request, struct forkyard_text *piece);
/* Gives up a request without a complete answer: closes the connection, so that the web server notices. */
void forkyard_concurrent_abandon(forkyard_worker *worker, uint64_t request);
/* The pool's listening HTTP socket, which the library owns; -1: there is none. */
int forkyard_concurrent_http(forkyard_worker *worker);
/* Accepts an HTTP connection, which the caller owns. -1: there is none, or the client is not allowed; -3: no room. */
int forkyard_concurrent_accept(forkyard_worker *worker);
/* Registers a request that came over HTTP; the worker counts, shows and limits it. `params`: names and values of a
 * FastCGI request alternately, each followed by NUL. End it with forkyard_concurrent_send of a head ("Status:
 * 200\r\n\r\n") as the last piece, or with forkyard_concurrent_abandon. FORKYARD_EVENT_EXPIRED may come first. */
uint64_t forkyard_concurrent_visit(forkyard_worker *worker, const char *params, size_t length);
/* Removes the request's time limit, because its connection is long-lived, such as a WebSocket. */
void forkyard_concurrent_endless(forkyard_worker *worker, uint64_t request);
/* Reports that part of such an answer was sent, or that it has started. A request that sends nothing for a second
 * does not count against the limit of requests. */
void forkyard_concurrent_sent(forkyard_worker *worker, uint64_t request);
/* Makes the worker exit after its current requests, as max_requests does. */
void forkyard_concurrent_retire(forkyard_worker *worker);
/* Requests out-of-band work. */
void forkyard_concurrent_want_work(forkyard_worker *worker);

/*
 * A worker that passes requests to several threads, for languages with blocking calls. In the worker:
 *
 *   w = forkyard_threads_begin(p);             NULL: exit with code 70
 *   ... start as many threads as "concurrency" in the application's JSON says, each of which does
 *       while (forkyard_threads_next(w, &record))
 *           ... answer it ...
 *   while ((wish = forkyard_threads_mind(w)) == 2)
 *       ... do out-of-band work, then call forkyard_worker_worked ...
 *   ... all threads have ended, except those stuck in a request that timed out ...
 *   _exit(forkyard_worker_end(w));             or, if the wish was 1, see forkyard_worker_promotes
 *
 * Call forkyard_threads_mind from one thread; the others may be called from any thread concurrently. Returned memory
 * is valid until the same thread's next call that returns memory. A request is a number, which becomes invalid when
 * its answer is complete, abandoned or timed out; calls with an invalid number do nothing.
 */
#define FORKYARD_LATER 2 /* flag of forkyard_threads_send: with the next piece */

forkyard_worker *forkyard_threads_begin(forkyard_preloader *preloader);
/* Waits. Returns 0: exit; 1: create a preloader first; 2: do out-of-band work and call it again. */
int forkyard_threads_mind(forkyard_worker *worker);
/* Ends this thread's request and waits for the next. Returns 1 with a record as in FORKYARD_EVENT_REQUEST, or 0: end
 * the thread. */
int forkyard_threads_next(forkyard_worker *worker, struct forkyard_text *record);
/* Waits for the next piece of the body. Returns 1, 0 for the last piece, or FORKYARD_GONE, also if the client timed
 * out. */
int forkyard_threads_read(forkyard_worker *worker, uint64_t request, struct forkyard_text *piece);
/* forkyard_concurrent_send without FORKYARD_MORE. Does not block. */
int64_t forkyard_threads_send(forkyard_worker *worker, uint64_t request, const void *bytes, size_t from, size_t length,
                              uint32_t flags);
/* After FORKYARD_FULL, waits until there is room. Returns 1 or FORKYARD_GONE. */
int forkyard_threads_wait(forkyard_worker *worker, uint64_t request);
/* See the functions of forkyard_concurrent. */
int64_t forkyard_threads_send_error(forkyard_worker *worker, uint64_t request, const char *text, size_t length);
void forkyard_threads_abandon(forkyard_worker *worker, uint64_t request);
void forkyard_threads_retire(forkyard_worker *worker);
void forkyard_threads_want_work(forkyard_worker *worker);

/* Writes all names, an empty name, and all values in the same order, each followed by NUL. Omits parameters with a
 * NUL or an empty name. Returns the total length; if it is larger than length, call it again with more room. */
size_t forkyard_request_params_packed(const forkyard_request *request, void *buffer, size_t length);
/* forkyard_preloader_application for languages that can't receive a struct. */
void forkyard_preloader_application_text(forkyard_preloader *preloader, struct forkyard_text *text);

#ifdef __cplusplus
}
#endif

#endif
