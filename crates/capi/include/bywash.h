/* Bywash: memory that moves between programs instead of being copied (containers and paths), requests from one
 * program to another without a system call on the way (channels), volumes of a device server (storage), and data
 * that goes from here to there the best way that there is (flows).
 *
 * Generated from crates/capi/src; do not edit. BYWASH_UPDATE_HEADER=1 cargo test -p bywash-capi --test header
 *
 * A program allocates a container on a path to another program, fills it and ships it; the other one receives
 * it, looks inside or does not, and ships it on or frees it.
 *
 * Of a channel, a client submits requests, with buffers if it wants to, and reaps completions; a server takes the
 * requests and completes them, in any order. The two need not trust each other.
 *
 * A device server has volumes, which it shares among programs that need not trust each other. A program opens them
 * and reads and writes whole blocks, by calls that wait, or by many requests at a time through a queue; in the
 * medium's own memory where that can be mapped, and through a channel to the server where it cannot.
 *
 * A flow has a source, stages and a sink: files, sockets, pipes, programs, said as text. It can be planned and
 * explained; when it was started, it can be watched, cancelled and waited for.
 *
 * Functions answer 0, or a negative number of enum bywash_error; bywash_last_error_message() has the text.
 *
 * Handles are small structs, passed by value; zero is none (struct bywash_path path = {0}). Functions that
 * end a handle take its address and set it to zero. Any other copy of it is dead then: to use it answers
 * BYWASH_ERROR_HANDLE, and touches nothing. Each handle given costs about 15 ns.
 *
 * Pointers that are given must be valid or null; null answers BYWASH_ERROR_ARGUMENT where it is not allowed.
 * Where a function fails, what it would have written is left alone, unless it says otherwise.
 *
 * Memory that is given to be copied from or to is the program's own, and not part of a container or a buffer.
 *
 * Threads: paths, listeners, clients, servers, storage, volumes and started flows may be used by several threads at a time; of those that use a
 * client one may wait for completions, of those that use a server one may wait for requests. Every other handle
 * is used by one thread at a time, and may go from one to another; BYWASH_ERROR_BUSY tells where that was not kept.
 *
 * Processes: what the parent made is dead in a forked child (BYWASH_ERROR_FORKED). Fork first, and let each
 * process make its own end. In a child of a process with several threads, call nothing here before exec.
 *
 * Signals do not interrupt what waits. No exception or panic comes out of a function: where the library finds
 * itself broken it aborts the program.
 */

#ifndef BYWASH_H
#define BYWASH_H

#include <stddef.h>
#include <stdint.h>

#define BYWASH_VERSION_MAJOR 0
#define BYWASH_VERSION_MINOR 1
#define BYWASH_VERSION_PATCH 0
#define BYWASH_VERSION (BYWASH_VERSION_MAJOR * 1000000 + BYWASH_VERSION_MINOR * 1000 + BYWASH_VERSION_PATCH)

/**
 * For a time in nanoseconds: wait for ever. Every negative number does.
 */
#define BYWASH_FOREVER -1

/**
 * Most pieces of a message.
 */
#define BYWASH_PIECES_MAX 64

/**
 * Arguments of a request.
 */
#define BYWASH_ARGUMENTS 6

/**
 * Most pieces of a request to volumes.
 */
#define BYWASH_VOLUME_PIECES_MAX 32

/**
 * Where nobody knows how many bytes there are in all.
 */
#define BYWASH_UNKNOWN UINT64_MAX

/**
 * What functions answer that did not do what they were asked to. All are negative; 0 is success.
 */
typedef enum bywash_error {
  /**
   * Done.
   */
  BYWASH_OK = 0,
  /**
   * The handle is zero, was freed, closed or shipped, or never was one.
   */
  BYWASH_ERROR_HANDLE = -1,
  /**
   * Another thread is in a call with this handle, and only one at a time can be. Or callbacks reap.
   */
  BYWASH_ERROR_BUSY = -2,
  /**
   * A pointer is null, or a number is none that there is.
   */
  BYWASH_ERROR_ARGUMENT = -3,
  /**
   * It did not happen within the time that was given. With a time of 0: not at once.
   */
  BYWASH_ERROR_TIMED_OUT = -4,
  /**
   * The peer has closed its end, and everything that it had sent has been received.
   */
  BYWASH_ERROR_CLOSED = -5,
  /**
   * The peer is gone without having closed its end.
   */
  BYWASH_ERROR_PEER_DIED = -6,
  /**
   * The peer broke the protocol. The path or channel is of no use any more.
   */
  BYWASH_ERROR_PEER = -7,
  /**
   * The two ends do not fit together.
   */
  BYWASH_ERROR_MISFIT = -8,
  /**
   * No container or buffer of this size can ever be had here.
   */
  BYWASH_ERROR_TOO_LARGE = -9,
  /**
   * A message has from one to BYWASH_PIECES_MAX pieces (on sealed paths to 16); a request to volumes one to 32.
   */
  BYWASH_ERROR_PIECES = -10,
  /**
   * The contents cannot be looked at where they are. Copy them out.
   */
  BYWASH_ERROR_NOT_MAPPED = -11,
  /**
   * This container cannot be shipped on this path, this buffer is of another channel or queue, or this mover cannot
   * move this flow.
   */
  BYWASH_ERROR_UNFIT = -12,
  /**
   * The end belongs to the process that made it, and this one was forked off.
   */
  BYWASH_ERROR_FORKED = -13,
  /**
   * An option, or what a flow was told, is something that cannot be.
   */
  BYWASH_ERROR_OPTION = -14,
  /**
   * A call of the kernel failed; bywash_last_error_number() says how.
   */
  BYWASH_ERROR_IO = -15,
  /**
   * A million handles of a kind were made and not freed. What was to get one was freed.
   */
  BYWASH_ERROR_FULL = -16,
  /**
   * The arena is used up for now, or as many requests are under way as the channel is deep.
   */
  BYWASH_ERROR_NO_ROOM = -17,
  /**
   * The flow was cancelled.
   */
  BYWASH_ERROR_CANCELLED = -18,
  /**
   * What a flow moved is not what it should be: shorter than it was, not compressed, not of the hash expected.
   */
  BYWASH_ERROR_DATA = -19,
  /**
   * Datagrams were lost on the way.
   */
  BYWASH_ERROR_LOST = -20,
  /**
   * A program that a flow went through failed.
   */
  BYWASH_ERROR_PROGRAM = -21,
  /**
   * You may not do that with the volume, or it was not opened for that.
   */
  BYWASH_ERROR_DENIED = -22,
  /**
   * There is no such volume.
   */
  BYWASH_ERROR_MISSING = -23,
  /**
   * The device server refused it for another reason, which the text tells.
   */
  BYWASH_ERROR_REFUSED = -24,
  /**
   * The right to the volume was taken back. Open it again, if that is still allowed.
   */
  BYWASH_ERROR_REVOKED = -25,
  /**
   * Not whole blocks, or not all within the volume, or lengths that do not fit together.
   */
  BYWASH_ERROR_RANGE = -26,
  /**
   * The device failed, has no room, did not answer in time, or cannot do that.
   */
  BYWASH_ERROR_DEVICE = -27,
  /**
   * The bytes were not what was expected, and nothing was written.
   */
  BYWASH_ERROR_DIFFERS = -28,
  /**
   * The server went while it compared and wrote: whether it wrote is unknown.
   */
  BYWASH_ERROR_UNKNOWN = -29,
  /**
   * Nothing is under way that could be waited for.
   */
  BYWASH_ERROR_IDLE = -30,
} bywash_error;

/**
 * What an end does with what it receives, and how it ships. The two ends choose on their own, but both or
 * neither must be sealed.
 */
typedef enum bywash_class {
  /**
   * What is received is copied out before it is believed, since the peer could change it meanwhile. The
   * default, and the one to take if in doubt.
   */
  BYWASH_CLASS_CHECKED = 0,
  /**
   * What is received is looked at where it is. By choosing this you promise that the peer writes nothing
   * that it has shipped until it has come back. A peer that uses this library and nothing else keeps that;
   * one that others may have written or broken into does not. If the promise is broken, what you look at
   * changes under your eyes.
   */
  BYWASH_CLASS_TRUSTED = 1,
  /**
   * As BYWASH_CLASS_TRUSTED, and who receives a container from here may write it in place, if both ends say
   * so. You also promise that the peer writes nothing that it does not have.
   */
  BYWASH_CLASS_TRUSTED_TO_WRITE = 2,
  /**
   * Each container is memory of its own that nobody can write any more once it was shipped. It can be looked
   * at where it is without any promise, kept, and shipped on. It costs some system calls for each.
   */
  BYWASH_CLASS_SEALED = 3,
  /**
   * What is received is never mapped here, only shipped on.
   */
  BYWASH_CLASS_FORWARD = 4,
} bywash_class;

/**
 * How an end waits for the other.
 */
typedef enum bywash_wait {
  /**
   * Spin where that has paid, for 100 us at most, then sleep. The default.
   */
  BYWASH_WAIT_ADAPTIVE = 0,
  /**
   * Spin and never sleep: the shortest latency, for a core of its own.
   */
  BYWASH_WAIT_SPIN = 1,
  /**
   * Sleep at once: nothing to pay while waiting, and the end of the peer is seen at once.
   */
  BYWASH_WAIT_SLEEP = 2,
} bywash_wait;

/**
 * Pages of 2 MiB for an arena.
 */
typedef enum bywash_huge_pages {
  /**
   * Ordinary memory, all of it taken at once and made into huge pages where the kernel can.
   */
  BYWASH_HUGE_PAGES_COLLAPSE = 0,
  /**
   * Pages that were reserved for it (/proc/sys/vm/nr_hugepages), else BYWASH_ERROR_IO.
   */
  BYWASH_HUGE_PAGES_RESERVED = 1,
  /**
   * None; memory is taken as it is used. The default.
   */
  BYWASH_HUGE_PAGES_NO = 2,
} bywash_huge_pages;

/**
 * What may be done with a volume.
 */
typedef enum bywash_access {
  /**
   * Reading.
   */
  BYWASH_ACCESS_READ = 0,
  /**
   * Writing.
   */
  BYWASH_ACCESS_WRITE = 1,
  /**
   * Both.
   */
  BYWASH_ACCESS_READ_WRITE = 2,
} bywash_access;

/**
 * Which way to volumes is wanted.
 */
typedef enum bywash_choice {
  /**
   * Mapped where the medium is memory that can be mapped, else through the channel. The default.
   */
  BYWASH_CHOICE_AUTOMATIC = 0,
  /**
   * Mapped, or not at all.
   */
  BYWASH_CHOICE_MAPPED = 1,
  /**
   * Through the channel, always.
   */
  BYWASH_CHOICE_CHANNEL = 2,
} bywash_choice;

/**
 * How an end of a path is made. Used by one thread at a time.
 */
typedef struct bywash_options {
  /**
   * 0: none, which stands for the defaults where a path is made.
   */
  uint64_t id;
} bywash_options;

/**
 * Waits for peers. May be used by several threads at a time.
 */
typedef struct bywash_listener {
  /**
   * 0: none.
   */
  uint64_t id;
} bywash_listener;

/**
 * One end of a path. May be used by several threads at a time.
 */
typedef struct bywash_path {
  /**
   * 0: none.
   */
  uint64_t id;
} bywash_path;

/**
 * Who somebody is, as the kernel says.
 */
typedef struct bywash_credentials {
  /**
   * Process, in this process's namespace; 0 if it has no number there.
   */
  uint32_t pid;
  /**
   * User.
   */
  uint32_t uid;
  /**
   * Group.
   */
  uint32_t gid;
} bywash_credentials;

/**
 * What one end of a path has done so far. Counts may be off by some where several threads use the end.
 */
typedef struct bywash_stats {
  /**
   * Messages shipped.
   */
  uint64_t shipped;
  /**
   * Bytes in them.
   */
  uint64_t shipped_bytes;
  /**
   * Messages received.
   */
  uint64_t received;
  /**
   * Bytes in them.
   */
  uint64_t received_bytes;
  /**
   * Messages of so few bytes that these were copied into a ring's entry, shipped or received.
   */
  uint64_t inline_messages;
  /**
   * Bytes that were copied out of containers in an arena.
   */
  uint64_t copied_out_bytes;
  /**
   * Containers shipped on as they came.
   */
  uint64_t forwarded;
  /**
   * Times that what was waited for came while spinning.
   */
  uint64_t spins;
  /**
   * Sleeps on a futex.
   */
  uint64_t futex_sleeps;
  /**
   * Sleeps on the socket.
   */
  uint64_t socket_sleeps;
  /**
   * Times that the peer was woken by a futex.
   */
  uint64_t futex_wakes;
  /**
   * Times that the peer was woken through the socket.
   */
  uint64_t doorbells;
  /**
   * Times that there was no room at first.
   */
  uint64_t no_room;
  /**
   * Size of this end's arena, in bytes.
   */
  uint64_t arena_bytes;
  /**
   * Containers of the arena that this program has and has not shipped.
   */
  uint64_t arena_held;
  /**
   * Bytes of the arena that this program has and has not shipped.
   */
  uint64_t arena_held_bytes;
  /**
   * Containers of the arena that the peer has and has not given back.
   */
  uint64_t arena_shipped;
  /**
   * Bytes of the arena that the peer has and has not given back.
   */
  uint64_t arena_shipped_bytes;
  /**
   * Size of the largest container that could be allocated in the arena, in bytes.
   */
  uint64_t arena_largest_free;
} bywash_stats;

/**
 * Memory that can be filled and shipped. Used by one thread at a time.
 */
typedef struct bywash_container {
  /**
   * 0: none.
   */
  uint64_t id;
} bywash_container;

/**
 * What was received: one piece, or several that were shipped together. Used by one thread at a time.
 */
typedef struct bywash_message {
  /**
   * 0: none.
   */
  uint64_t id;
} bywash_message;

/**
 * Something to be shipped: a container or a message. The other handle is zero.
 */
typedef struct bywash_cargo {
  /**
   * A container of the path on which it is shipped.
   */
  struct bywash_container container;
  /**
   * A message that came on any path; all of its pieces go along.
   */
  struct bywash_message message;
} bywash_cargo;

/**
 * How the client's end of a channel is made. Used by one thread at a time.
 */
typedef struct bywash_client_options {
  /**
   * 0: none, which stands for the defaults where a channel is made.
   */
  uint64_t id;
} bywash_client_options;

/**
 * What a server allows its client, and how it waits. Used by one thread at a time.
 */
typedef struct bywash_server_options {
  /**
   * 0: none, which stands for the defaults where a channel is made.
   */
  uint64_t id;
} bywash_server_options;

/**
 * The client's end of a channel. May be used by several threads at a time; one of them may wait for
 * completions.
 */
typedef struct bywash_client {
  /**
   * 0: none.
   */
  uint64_t id;
} bywash_client;

/**
 * Memory of the arena of a client or a queue, to go along with requests. Used by one thread at a time.
 */
typedef struct bywash_buffer {
  /**
   * 0: none.
   */
  uint64_t id;
} bywash_buffer;

/**
 * What is to be submitted; the service says what opcode, flags and arguments mean. Set all of it to zero and
 * then what you need. This struct stays as it is, as the protocol's requests do.
 */
typedef struct bywash_submission {
  /**
   * What to do.
   */
  uint8_t opcode;
  /**
   * How.
   */
  uint8_t flags;
  /**
   * With what.
   */
  uint64_t arguments[BYWASH_ARGUMENTS];
  /**
   * Memory that goes along, or zero.
   */
  struct bywash_buffer buffer;
  /**
   * Yours: the server does not see it, and it comes back with the completion. A pointer, say.
   */
  uint64_t user_data;
} bywash_submission;

/**
 * What became of a request. This struct stays as it is, as the protocol's completions do.
 */
typedef struct bywash_completion {
  /**
   * What the service says.
   */
  uint64_t value;
  /**
   * What was given with the request.
   */
  uint64_t user_data;
  /**
   * The memory that went along, under a new handle: to be used again, or freed. Zero if there was none.
   */
  struct bywash_buffer buffer;
  /**
   * Which request it was.
   */
  uint16_t tag;
  /**
   * How it went: 0 is success, the rest is the service's.
   */
  uint16_t status;
} bywash_completion;

/**
 * What one end of a channel has done so far. Counts may be off by some where several threads use the end.
 */
typedef struct bywash_channel_stats {
  /**
   * Requests submitted, or taken by the server.
   */
  uint64_t requests;
  /**
   * Completions sent, or reaped by the client.
   */
  uint64_t completions;
  /**
   * Bytes copied into buffers and out of them.
   */
  uint64_t copied_bytes;
  /**
   * Times that what was waited for came while spinning.
   */
  uint64_t spins;
  /**
   * Sleeps on a futex.
   */
  uint64_t futex_sleeps;
  /**
   * Sleeps on the socket.
   */
  uint64_t socket_sleeps;
  /**
   * Times that the peer was woken by a futex.
   */
  uint64_t futex_wakes;
  /**
   * Times that the peer was woken through the socket.
   */
  uint64_t doorbells;
} bywash_channel_stats;

/**
 * What is called for a completion, in a thread that calls for one after the other. `context` is what was given
 * to bywash_client_dispatch(). `error` is BYWASH_OK, and `completion` is there until the callback returns; its
 * buffer is the callback's to use or free. Or else `error` is what ended the channel, `completion` is null, and
 * nothing more is called: then bywash_last_error_message() has the text. (BYWASH_ERROR_FULL is as in
 * bywash_client_reap().)
 *
 * A callback may call everything here but bywash_client_dispatch_stop() of its own client.
 */
typedef void (*bywash_callback)(void *context, int error, const struct bywash_completion *completion);

/**
 * A request that a server has taken, to be completed by bywash_request_complete(). Used by one thread at a time,
 * whichever.
 */
typedef struct bywash_request {
  /**
   * 0: none.
   */
  uint64_t id;
} bywash_request;

/**
 * The server's end of a channel. May be used by several threads at a time; one of them may wait for requests.
 */
typedef struct bywash_server {
  /**
   * 0: none.
   */
  uint64_t id;
} bywash_server;

/**
 * What a request says; the service says what it means. It was checked by nobody. This struct stays as it is, as
 * the protocol's requests do.
 */
typedef struct bywash_request_contents {
  /**
   * What to do.
   */
  uint8_t opcode;
  /**
   * How.
   */
  uint8_t flags;
  /**
   * With what.
   */
  uint64_t arguments[BYWASH_ARGUMENTS];
  /**
   * Bytes of the memory that came along.
   */
  size_t length;
} bywash_request_contents;

/**
 * How a connection to a device server is made. Used by one thread at a time.
 */
typedef struct bywash_storage_options {
  /**
   * 0: none, which stands for the defaults.
   */
  uint64_t id;
} bywash_storage_options;

/**
 * A connection to a device server. May be used by several threads at a time.
 */
typedef struct bywash_storage {
  /**
   * 0: none.
   */
  uint64_t id;
} bywash_storage;

/**
 * A text that the library made. Used by one thread at a time.
 */
typedef struct bywash_text {
  /**
   * 0: none.
   */
  uint64_t id;
} bywash_text;

/**
 * An open volume. May be used by several threads at a time.
 */
typedef struct bywash_volume {
  /**
   * 0: none.
   */
  uint64_t id;
} bywash_volume;

/**
 * What an open volume is.
 */
typedef struct bywash_volume_info {
  /**
   * Its bytes.
   */
  uint64_t bytes;
  /**
   * Bytes of a block: offsets and lengths are multiples of it.
   */
  uint32_t block;
  /**
   * One of enum bywash_access.
   */
  uint32_t access;
  /**
   * 1: its memory is mapped here, and no server is on the way. 0: requests go through the channel.
   */
  uint32_t is_mapped;
} bywash_volume_info;

/**
 * A part of a volume that is read.
 */
typedef struct bywash_read_piece {
  /**
   * Of which volume.
   */
  struct bywash_volume volume;
  /**
   * From which byte on.
   */
  uint64_t offset;
  /**
   * Where it goes.
   */
  uint8_t *to;
  /**
   * How many bytes.
   */
  size_t length;
} bywash_read_piece;

/**
 * A part of a volume that is written.
 */
typedef struct bywash_write_piece {
  /**
   * Of which volume.
   */
  struct bywash_volume volume;
  /**
   * From which byte on.
   */
  uint64_t offset;
  /**
   * What is written.
   */
  const uint8_t *from;
  /**
   * How many bytes.
   */
  size_t length;
} bywash_write_piece;

/**
 * Requests that are submitted without waiting, over a connection of its own. Used by one thread at a time; while it has a
 * callback by any.
 */
typedef struct bywash_queue {
  /**
   * 0: none.
   */
  uint64_t id;
} bywash_queue;

/**
 * What became of a request of a queue. This struct stays as it is.
 */
typedef struct bywash_done {
  /**
   * What was given with the request.
   */
  uint64_t user_data;
  /**
   * The buffer that went along, under a new handle: to be used again, or freed. Zero if there was none, and if it is
   * lost, since the device did not answer in time or the server went.
   */
  struct bywash_buffer buffer;
  /**
   * BYWASH_OK, or one of enum bywash_error; bywash_last_error_message() has the text for the last one that was not OK
   * of those that one call told. BYWASH_ERROR_FULL: it was done, and its buffer was freed.
   */
  int error;
} bywash_done;

/**
 * A part of a volume of a queue.
 */
typedef struct bywash_range {
  /**
   * Of which volume, as bywash_queue_open() has told.
   */
  uint64_t volume;
  /**
   * From which byte on.
   */
  uint64_t offset;
  /**
   * How many bytes.
   */
  size_t length;
} bywash_range;

/**
 * What is called for a request that is done, in a thread that calls for one after the other. `context` is what was given to
 * bywash_queue_dispatch(). `error` is BYWASH_OK, and `done` is there until the callback returns; its buffer is the
 * callback's to use or free, and its error is what became of the request. Or else `error` is what ended the queue, `done`
 * is null, and nothing more is called: then bywash_last_error_message() has the text.
 *
 * A callback may call everything here but bywash_queue_dispatch_stop() of its own queue.
 */
typedef void (*bywash_queue_callback)(void *context, int error, const struct bywash_done *done);

/**
 * Data from here to there: it can be planned, explained and started, more than once. Used by one thread at a time.
 */
typedef struct bywash_flow {
  /**
   * 0: none.
   */
  uint64_t id;
} bywash_flow;

/**
 * A flow that was started. May be used by several threads at a time.
 */
typedef struct bywash_running {
  /**
   * 0: none.
   */
  uint64_t id;
} bywash_running;

/**
 * What a flow has come to. bywash_running_report() tells more.
 */
typedef struct bywash_report {
  /**
   * Bytes taken from the source, holes included.
   */
  uint64_t bytes;
  /**
   * Of these, bytes of holes that stayed holes.
   */
  uint64_t holes;
  /**
   * How long it took.
   */
  double seconds;
  /**
   * Processor time of the flow's threads, and of the programs that it went through.
   */
  double cpu_seconds;
  /**
   * 1: everything has arrived. 0: it has not.
   */
  uint32_t whole;
  /**
   * The pieces that the flow consisted of: one, and one more for each program and for a way back.
   */
  uint32_t pieces;
} bywash_report;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * What the last function that failed on this thread has to say: what was wrong, with what, and what to do.
 * Empty if none has failed. Never null. Valid until another function fails on this thread, or the thread ends.
 */
const char *bywash_last_error_message(void);

/**
 * The kernel's number (errno) for the last failure on this thread, if that was BYWASH_ERROR_IO; else 0.
 */
int bywash_last_error_number(void);

/**
 * The version that the program is running with: major * 1000000 + minor * 1000 + patch. Compare it with
 * BYWASH_VERSION, the one that it was compiled for.
 */
uint32_t bywash_version(void);

/**
 * Makes options: a checked end with an arena of 16 MiB. Free them with bywash_options_free(); paths that were
 * made with them do not need them.
 */
int bywash_options_new(struct bywash_options *options);

/**
 * Frees options and zeroes the handle. Zero is left alone.
 */
int bywash_options_free(struct bywash_options *options);

/**
 * Sets the class, one of enum bywash_class. Read there what the trusted ones ask you to promise.
 */
int bywash_options_set_class(struct bywash_options options, int which);

/**
 * Sets the bytes of this end's arena: what it can have out and in the making at a time. Rounded up to pages,
 * from 2 MiB on to 2 MiB. 0: it ships only what it received. Default 16 MiB.
 */
int bywash_options_set_arena_bytes(struct bywash_options options, size_t bytes);

/**
 * Sets whether the arena has pages of 2 MiB, one of enum bywash_huge_pages.
 */
int bywash_options_set_huge_pages(struct bywash_options options, int huge_pages);

/**
 * Sets how many messages can be on their way at a time: a power of two up to 4096 (else making a path fails
 * with BYWASH_ERROR_OPTION). Default 256.
 */
int bywash_options_set_depth(struct bywash_options options, uint32_t messages);

/**
 * Sets how many containers the peer can have at a time: a power of two up to 65536 (else making a path fails
 * with BYWASH_ERROR_OPTION). Default 1024.
 */
int bywash_options_set_containers_out_max(struct bywash_options options, uint32_t containers);

/**
 * Sets how this end waits, one of enum bywash_wait.
 */
int bywash_options_set_wait(struct bywash_options options, int wait);

/**
 * Sets how many bytes the peer's arena, and those that it passes on, may have together. Default 64 MiB. A peer that
 * brings more is BYWASH_ERROR_MISFIT.
 */
int bywash_options_set_peer_arena_bytes_max(struct bywash_options options,
                                            size_t bytes);

/**
 * Sets how long, in nanoseconds, the peer may take to present itself when a path is made. Not negative.
 * Default 10 s.
 */
int bywash_options_set_greeting_limit(struct bywash_options options, int64_t limit_ns);

/**
 * Listens at a name in the file system, which stays until you remove it. A socket there that nobody listens at any
 * more is replaced; anything else is BYWASH_ERROR_SYSTEM. Its permissions say who may connect. What a peer gets is for you to say when it comes: a path by bywash_accept(), or a
 * channel by bywash_server_accept().
 */
int bywash_listen(const char *name,
                  struct bywash_listener *listener);

/**
 * Waits for a peer and makes a path to it. Peers that have connected present themselves side by side, so that one
 * that is silent keeps no other one waiting. A peer that does not fit is an error of this call only; the listener
 * goes on.
 */
int bywash_accept(struct bywash_listener listener,
                  struct bywash_options options,
                  struct bywash_path *path);

/**
 * As bywash_accept(), but waits no longer than timeout_ns in all, until the peer has presented itself; negative:
 * for ever.
 */
int bywash_accept_within(struct bywash_listener listener,
                         struct bywash_options options,
                         int64_t timeout_ns,
                         struct bywash_path *path);

/**
 * Waits for a peer that presents itself and answers the descriptor of the connection, which is yours: give it to
 * bywash_path_over() or bywash_server_over(), or close it.
 */
int bywash_accept_fd(struct bywash_listener listener,
                     int *fd);

/**
 * Tells the listener's descriptor, which is readable when a call that accepts may find somebody. It stays the
 * library's.
 */
int bywash_listener_fd(struct bywash_listener listener, int *fd);

/**
 * Ends a listener and zeroes the handle. The name stays. Zero is left alone.
 */
int bywash_listener_close(struct bywash_listener *listener);

/**
 * Makes a path to whoever listens at a name.
 */
int bywash_connect(const char *name, struct bywash_options options, struct bywash_path *path);

/**
 * Makes two connected descriptors, closed on exec: keep one and give the other to whom the path shall lead to,
 * to a child, say. Each end calls bywash_path_over() in its own process, after the fork.
 */
int bywash_socket_pair(int *fds);

/**
 * Makes a path over a connected descriptor of bywash_socket_pair(), or one that was inherited. Waits until the
 * other end does the same. The descriptor is the library's from here on, and is closed even if this fails,
 * except with BYWASH_ERROR_ARGUMENT and BYWASH_ERROR_HANDLE.
 */
int bywash_path_over(int fd,
                     struct bywash_options options,
                     struct bywash_path *path);

/**
 * Closes this end and zeroes the handle. The peer receives what was shipped before, and then
 * BYWASH_ERROR_CLOSED. Messages and containers of the path stay what they are. A call of another thread that
 * is under way ends first; then the path closes. Zero is left alone.
 */
int bywash_path_close(struct bywash_path *path);

/**
 * Tells who is at the other end, as the kernel says.
 */
int bywash_path_peer(struct bywash_path path, struct bywash_credentials *peer);

/**
 * Tells what this end has done so far. `size` is sizeof(struct bywash_stats) as the program knows it: it gets
 * so many bytes, and counters that are newer than the library are 0.
 */
int bywash_path_stats(struct bywash_path path, struct bywash_stats *stats, size_t size);

/**
 * Tells the path's descriptor, for an event loop; see bywash_path_arm(). It stays the library's: poll it, and
 * do nothing else with it.
 */
int bywash_path_fd(struct bywash_path path, int *fd);

/**
 * For event loops. Receive with a time of 0 until there is nothing; then call this. `ready` 0: from now on the
 * descriptor becomes readable when the peer ships something or is gone. `ready` 1: something is there already,
 * receive it. What made the descriptor readable is taken away by the next call of this.
 */
int bywash_path_arm(struct bywash_path path,
                    int *ready);

/**
 * Allocates a container of `bytes` on a path, waiting for room for `timeout_ns` nanoseconds (negative: for
 * ever; 0: not at all). What is in it is what was in it when it was used last, or zeros. End it by
 * bywash_ship() or bywash_free().
 *
 * BYWASH_ERROR_TOO_LARGE: larger than the arena. BYWASH_ERROR_TIMED_OUT: the arena is used up; the peer has
 * to free some. BYWASH_ERROR_UNFIT: no bytes at all, on a sealed path.
 */
int bywash_alloc(struct bywash_path path,
                 size_t bytes,
                 int64_t timeout_ns,
                 struct bywash_container *container);

/**
 * Tells where the bytes of a container are, and how many there are. They are yours to read and write until
 * the container is shipped or freed, or its length is changed; after a ship that failed ask again. `length` may
 * be null.
 */
int bywash_container_map(struct bywash_container container,
                         uint8_t **bytes,
                         size_t *length);

/**
 * Tells how many bytes a container will ship.
 */
int bywash_container_length(struct bywash_container container, size_t *length);

/**
 * Tells how many bytes a container could hold.
 */
int bywash_container_capacity(struct bywash_container container, size_t *capacity);

/**
 * Changes how many bytes a container will ship, up to its capacity (else BYWASH_ERROR_TOO_LARGE). Ask
 * bywash_container_map() again where they are.
 */
int bywash_container_resize(struct bywash_container container, size_t length);

/**
 * Frees a container without shipping it, and zeroes the handle. Zero is left alone.
 */
int bywash_free(struct bywash_container *container);

/**
 * Ships a container, waiting for room for `timeout_ns` nanoseconds (negative: for ever; 0: hardly). It is the
 * peer's then: the handle becomes zero, and the bytes must not be touched any more. On failure the container
 * stays, under a new handle that takes the old one's place, and its bytes are where bywash_container_map()
 * says.
 *
 * BYWASH_ERROR_UNFIT: it was allocated on another path.
 */
int bywash_ship(struct bywash_path path, struct bywash_container *container, int64_t timeout_ns);

/**
 * Ships `count` containers as one message, all or none; as bywash_ship().
 */
int bywash_ship_several(struct bywash_path path,
                        struct bywash_container *containers,
                        size_t count,
                        int64_t timeout_ns);

/**
 * Ships `count` containers and received messages as one message, all or none; as bywash_ship(). A header of
 * your own in front of what came from elsewhere, for instance.
 */
int bywash_ship_cargo(struct bywash_path path, struct bywash_cargo *cargo, size_t count, int64_t timeout_ns);

/**
 * Ships a message on as it came, on any path, looked at or not. It is the next peer's then: the handle becomes
 * zero, and what was mapped of it must not be looked at any more. When that peer frees it, it goes back to
 * where it came from. On failure the message stays, under a new handle, and nothing of it is mapped.
 */
int bywash_forward(struct bywash_path path,
                   struct bywash_message *message,
                   int64_t timeout_ns);

/**
 * Receives the next message, waiting for it for `timeout_ns` nanoseconds (negative: for ever; 0: not at all).
 * It goes back to the peer by bywash_message_free(), or on by bywash_forward().
 *
 * BYWASH_ERROR_TIMED_OUT: there was none. BYWASH_ERROR_CLOSED: there will be none.
 */
int bywash_receive(struct bywash_path path, int64_t timeout_ns, struct bywash_message *message);

/**
 * Tells how many bytes there are in all pieces of a message together.
 */
int bywash_message_length(struct bywash_message message, size_t *length);

/**
 * Tells who shipped a message here, as the kernel says: on the path on which it came, not who filled it first.
 */
int bywash_message_origin(struct bywash_message message,
                          struct bywash_credentials *origin);

/**
 * Tells how many pieces a message has; they are numbered from 0. Most have one.
 */
int bywash_message_pieces(struct bywash_message message, size_t *pieces);

/**
 * Tells how many bytes a piece has.
 */
int bywash_piece_length(struct bywash_message message, size_t piece, size_t *length);

/**
 * Makes a piece visible without copying it: tells where its bytes are and how many. They are yours to read
 * until bywash_unmap(), bywash_message_free() or a ship of the message. To map twice answers the same.
 * `length` may be null.
 *
 * BYWASH_ERROR_NOT_MAPPED, and `bytes` becomes null: on a checked path, where the peer could change what you
 * look at (copy it out), and on a forward path. Pieces of up to 120 bytes, which travel in the ring, can be
 * mapped on every path.
 */
int bywash_map(struct bywash_message message, size_t piece, const uint8_t **bytes, size_t *length);

/**
 * As bywash_map(), to be changed in place before it is shipped back or on. Both ends must have chosen
 * BYWASH_CLASS_TRUSTED_TO_WRITE, else BYWASH_ERROR_NOT_MAPPED; but for pieces of up to 120 bytes, which travel
 * as copies.
 */
int bywash_map_to_write(struct bywash_message message,
                        size_t piece,
                        uint8_t **bytes,
                        size_t *length);

/**
 * Ends what bywash_map() began: do not look at the bytes any more. A piece that is not mapped is left alone.
 */
int bywash_unmap(struct bywash_message message, size_t piece);

/**
 * Copies a message, one piece after the other, as much as fits into `size` bytes, and tells how much that was
 * (`copied` may be null). Nobody can change the copy after you have checked it.
 */
int bywash_copy_to(struct bywash_message message, uint8_t *to, size_t size, size_t *copied);

/**
 * As bywash_copy_to(), for one piece.
 */
int bywash_piece_copy_to(struct bywash_message message,
                         size_t piece,
                         uint8_t *to,
                         size_t size,
                         size_t *copied);

/**
 * Takes a message apart: each piece becomes a message of its own in `pieces`, to be freed, kept or shipped on
 * by itself. `most` is how many handles there is room for (BYWASH_PIECES_MAX is enough), `count` becomes how
 * many there are. The handle of the whole becomes zero; on failure it stays.
 */
int bywash_message_split(struct bywash_message *message,
                         struct bywash_message *pieces,
                         size_t most,
                         size_t *count);

/**
 * Frees a message, so that its containers go back to where they came from, and zeroes the handle. Zero is left
 * alone. To be done soon: what you hold the peer cannot use.
 */
int bywash_message_free(struct bywash_message *message);

/**
 * Makes options of a client: a depth of 256, an arena of 16 MiB, a server that is not trusted. Free them with
 * bywash_client_options_free(); channels that were made with them do not need them.
 */
int bywash_client_options_new(struct bywash_client_options *options);

/**
 * Frees options and zeroes the handle. Zero is left alone.
 */
int bywash_client_options_free(struct bywash_client_options *options);

/**
 * Sets how many requests can be under way at a time: a power of two up to 16384 (else making a channel fails
 * with BYWASH_ERROR_OPTION). Default 256.
 */
int bywash_client_options_set_depth(struct bywash_client_options options, uint32_t requests);

/**
 * Sets the bytes of the arena that buffers are cut from. Rounded up to pages, from 2 MiB on to 2 MiB. 0:
 * requests have no buffers. Default 16 MiB.
 */
int bywash_client_options_set_arena_bytes(struct bywash_client_options options, size_t bytes);

/**
 * Sets whether the arena has pages of 2 MiB: BYWASH_HUGE_PAGES_COLLAPSE, or BYWASH_HUGE_PAGES_NO, the default.
 * With BYWASH_HUGE_PAGES_RESERVED making a channel fails with BYWASH_ERROR_OPTION: the server may write to the
 * arena, so it could take such pages away.
 */
int bywash_client_options_set_huge_pages(struct bywash_client_options options,
                                         int huge_pages);

/**
 * Sets whether buffers can be looked at and written where they are (bywash_buffer_map()); 0 is no, the default.
 * By anything else you promise that the server does not touch a buffer but while a request with it is under
 * way. A server that uses this library and nothing else keeps that; one that others may have written or broken
 * into does not. If the promise is broken, what you look at changes under your eyes.
 */
int bywash_client_options_set_trusted(struct bywash_client_options options,
                                      int trusted);

/**
 * Sets how this end waits, one of enum bywash_wait.
 */
int bywash_client_options_set_wait(struct bywash_client_options options, int wait);

/**
 * Sets how long, in nanoseconds, the server may take to present itself. Not negative. Default 10 s.
 */
int bywash_client_options_set_greeting_limit(struct bywash_client_options options, int64_t limit_ns);

/**
 * Makes options of a server: depths up to 4096 and arenas up to 64 MiB are allowed. Free them with
 * bywash_server_options_free(); channels that were made with them do not need them.
 */
int bywash_server_options_new(struct bywash_server_options *options);

/**
 * Frees options and zeroes the handle. Zero is left alone.
 */
int bywash_server_options_free(struct bywash_server_options *options);

/**
 * Sets how many requests a client may have under way: a power of two up to 16384 (else making a channel fails
 * with BYWASH_ERROR_OPTION). Default 4096. A client that asks for more is BYWASH_ERROR_MISFIT, on both sides.
 */
int bywash_server_options_set_depth_max(struct bywash_server_options options, uint32_t requests);

/**
 * Sets how many bytes a client's arena may have. Default 64 MiB. It takes address space here, and memory where the
 * client has touched none. A client that asks for more is BYWASH_ERROR_MISFIT, on both sides.
 */
int bywash_server_options_set_arena_bytes_max(struct bywash_server_options options,
                                              size_t bytes);

/**
 * Sets how this end waits, one of enum bywash_wait.
 */
int bywash_server_options_set_wait(struct bywash_server_options options, int wait);

/**
 * Sets how long, in nanoseconds, a client may take to present itself. Not negative. Default 10 s.
 */
int bywash_server_options_set_greeting_limit(struct bywash_server_options options, int64_t limit_ns);

/**
 * Takes a buffer of `bytes` from a client's arena, to be submitted again and again. What is in it is what was in
 * it when it was used last, or zeros. It never waits, and any thread may call it. Free it by
 * bywash_buffer_free(), before or after the client is closed.
 *
 * BYWASH_ERROR_TOO_LARGE: larger than the arena. BYWASH_ERROR_NO_ROOM: other buffers have the arena.
 */
int bywash_buffer_alloc(struct bywash_client client,
                        size_t bytes,
                        struct bywash_buffer *buffer);

/**
 * Frees a buffer and zeroes the handle. Zero is left alone.
 */
int bywash_buffer_free(struct bywash_buffer *buffer);

/**
 * Tells how many bytes of a buffer go along with a request.
 */
int bywash_buffer_length(struct bywash_buffer buffer, size_t *length);

/**
 * Tells how many bytes a buffer could have.
 */
int bywash_buffer_capacity(struct bywash_buffer buffer, size_t *capacity);

/**
 * Changes how many bytes of a buffer go along with a request, up to its capacity (else
 * BYWASH_ERROR_TOO_LARGE).
 */
int bywash_buffer_resize(struct bywash_buffer buffer, size_t length);

/**
 * Copies `size` bytes at `from` to a buffer's bytes from `at` on, as many as there is room for within its
 * length, and tells how many that were (`copied` may be null).
 */
int bywash_buffer_write(struct bywash_buffer buffer,
                        size_t at,
                        const uint8_t *from,
                        size_t size,
                        size_t *copied);

/**
 * Copies a buffer's bytes from `at` on, as many as there are and fit into the `size` bytes at `to`, and tells how
 * many that were (`copied` may be null). Nobody can change the copy after you have checked it.
 */
int bywash_buffer_read(struct bywash_buffer buffer,
                       size_t at,
                       uint8_t *to,
                       size_t size,
                       size_t *copied);

/**
 * Tells where the bytes of a buffer are, and how many there are. They are yours to read and write until the
 * buffer is submitted or freed; when it has come back they are where they were. `length` may be null.
 *
 * BYWASH_ERROR_NOT_MAPPED, and `bytes` becomes null: the server is not trusted, and could change what you look
 * at. Copy, with bywash_buffer_read() and bywash_buffer_write().
 */
int bywash_buffer_map(struct bywash_buffer buffer,
                      uint8_t **bytes,
                      size_t *length);

/**
 * Makes a channel to the server that listens at a name, as its client.
 */
int bywash_client_connect(const char *name,
                          struct bywash_client_options options,
                          struct bywash_client *client);

/**
 * Makes the client's end of a channel over a connected descriptor of bywash_socket_pair(), or one that was
 * inherited. Waits until the server does the same with the other one. The descriptor is the library's from here
 * on, and is closed even if this fails, except with BYWASH_ERROR_ARGUMENT and BYWASH_ERROR_HANDLE.
 */
int bywash_client_over(int fd,
                       struct bywash_client_options options,
                       struct bywash_client *client);

/**
 * Closes this end and zeroes the handle. The server takes what was submitted before, and hears then that there
 * is no more; what it completes goes nowhere. A call that waits in another thread ends within 100 ms, with
 * BYWASH_ERROR_HANDLE. Callbacks are stopped as by bywash_client_dispatch_stop(); called from within one, this
 * does not wait for it, and nothing is called after it. Buffers stay what they are, but those that are under
 * way are freed. Zero is left alone.
 */
int bywash_client_close(struct bywash_client *client);

/**
 * Submits a request, and tells its tag: less than the depth, and its own until its completion (`tag` may be
 * null). It never waits; threads that submit at the same time take turns. The buffer is the server's then: its
 * handle becomes zero, and its bytes must not be touched until it comes back with the completion. On failure the
 * buffer stays, under a new handle that takes the old one's place, and the rest of the submission is as it was.
 *
 * BYWASH_ERROR_NO_ROOM: as many requests are under way as the channel is deep; reap first. BYWASH_ERROR_UNFIT:
 * the buffer is of another channel. That the server is gone is heard of by those who reap.
 */
int bywash_client_submit(struct bywash_client client,
                         struct bywash_submission *submission,
                         uint16_t *tag);

/**
 * Waits for the next completion, of whichever request, for `timeout_ns` nanoseconds (negative: for ever; 0: not
 * at all). One thread at a time; others may submit meanwhile.
 *
 * BYWASH_ERROR_TIMED_OUT: there was none. BYWASH_ERROR_CLOSED, BYWASH_ERROR_PEER_DIED: what the server had
 * completed before came first, and the rest will not come; that it died is not seen with a time of 0.
 * BYWASH_ERROR_BUSY: another thread waits, or callbacks reap. BYWASH_ERROR_FULL: the completion is there all the
 * same, and its buffer was freed.
 */
int bywash_client_reap(struct bywash_client client,
                       int64_t timeout_ns,
                       struct bywash_completion *completion);

/**
 * For event loops. Reap with a time of 0 until there is nothing; then call this. `ready` 0: from now on the
 * descriptor becomes readable when the server completes something or is gone. `ready` 1: something is there
 * already, reap it. What made the descriptor readable is taken away by the next call of this, which also is who
 * hears that the server died.
 */
int bywash_client_arm(struct bywash_client client,
                      int *ready);

/**
 * Tells the channel's descriptor, for an event loop; see bywash_client_arm(). It stays the library's: poll it,
 * and do nothing else with it.
 */
int bywash_client_fd(struct bywash_client client,
                     int *fd);

/**
 * Tells how many requests are under way: submitted, and not reaped. While other threads submit and reap it may
 * be off by what they are just doing.
 */
int bywash_client_under_way(struct bywash_client client,
                            uint32_t *requests);

/**
 * Tells how many requests can be under way at a time.
 */
int bywash_client_depth(struct bywash_client client, uint32_t *requests);

/**
 * Tells who the server is, as the kernel says.
 */
int bywash_client_peer(struct bywash_client client, struct bywash_credentials *peer);

/**
 * Tells what this end has done so far. `size` is sizeof(struct bywash_channel_stats) as the program knows it: it
 * gets so many bytes, and counters that are newer than the library are 0.
 */
int bywash_client_stats(struct bywash_client client,
                        struct bywash_channel_stats *stats,
                        size_t size);

/**
 * Has `callback` called for each completion, in a thread that waits as the client does, until
 * bywash_client_dispatch_stop() or bywash_client_close(); and once with the error that ends the channel. Nobody
 * else can reap meanwhile (BYWASH_ERROR_BUSY). What `callback` uses must be there until then.
 *
 * BYWASH_ERROR_IO: there can be no thread.
 */
int bywash_client_dispatch(struct bywash_client client,
                           bywash_callback callback,
                           void *context);

/**
 * Waits until the callback that is running has returned (up to 100 ms longer), and ends callbacks: nothing is
 * called after that, and bywash_client_reap() can be used again. Where there are no callbacks this does nothing.
 */
int bywash_client_dispatch_stop(struct bywash_client client);

/**
 * Copies the bytes from `at` on of the memory that came with a request, as many as there are and fit into the
 * `size` bytes at `to`, and tells how many that were (`copied` may be null). The client can change its memory at
 * any time, and not the copy: copy, then check and believe the copy.
 */
int bywash_request_read(struct bywash_request request,
                        size_t at,
                        uint8_t *to,
                        size_t size,
                        size_t *copied);

/**
 * Copies `size` bytes at `from` to the bytes from `at` on of the memory that came with a request, as many as
 * there is room for, and tells how many that were (`copied` may be null).
 */
int bywash_request_write(struct bywash_request request,
                         size_t at,
                         const uint8_t *from,
                         size_t size,
                         size_t *copied);

/**
 * Tells where the memory is that came with a request, for a system call or a device, and how many bytes there
 * are (`length` may be null); null where none came along. It is there until the request is completed. The client
 * can change it at any time: do not check what is there and believe it afterwards.
 */
int bywash_request_memory(struct bywash_request request,
                          uint8_t **bytes,
                          size_t *length);

/**
 * Completes a request: its client hears of it, has its memory again, and may use the tag again. A status of 0 is
 * success; the rest, and the value, are the service's. It never waits; threads that complete at the same time
 * take turns. The handle becomes zero, and the request is gone whatever this answers but BYWASH_ERROR_HANDLE,
 * BYWASH_ERROR_BUSY and BYWASH_ERROR_ARGUMENT.
 *
 * A client that is gone does not hear of it, and that is no error. BYWASH_ERROR_CLOSED: the server was closed
 * before; this only frees the request.
 */
int bywash_request_complete(struct bywash_request *request,
                            uint16_t status,
                            uint64_t value);

/**
 * Waits for a client and makes a channel to it. Clients that have connected present themselves side by side, so
 * that one that is silent keeps no other one waiting. A client that does not fit is an error of this call only; the
 * listener goes on.
 */
int bywash_server_accept(struct bywash_listener listener,
                         struct bywash_server_options options,
                         struct bywash_server *server);

/**
 * As bywash_server_accept(), but waits no longer than timeout_ns in all, until the client has presented itself;
 * negative: for ever.
 */
int bywash_server_accept_within(struct bywash_listener listener,
                                struct bywash_server_options options,
                                int64_t timeout_ns,
                                struct bywash_server *server);

/**
 * Makes the server's end of a channel over a connected descriptor of bywash_socket_pair(), or one that was
 * inherited, or of bywash_accept_fd(). Waits until the client does the same with the other one. The descriptor
 * is the library's from here on, and is closed even if this fails, except with BYWASH_ERROR_ARGUMENT and
 * BYWASH_ERROR_HANDLE.
 */
int bywash_server_over(int fd,
                       struct bywash_server_options options,
                       struct bywash_server *server);

/**
 * Closes this end and zeroes the handle. The client reaps what was completed before, and hears then that there
 * is no more. A call that waits in another thread ends within 100 ms, with BYWASH_ERROR_HANDLE. Requests that
 * were taken and not completed keep their memory until bywash_request_complete() frees them. Zero is left alone.
 */
int bywash_server_close(struct bywash_server *server);

/**
 * Waits for the next request for `timeout_ns` nanoseconds (negative: for ever; 0: not at all), and tells what it
 * says. It is to be ended by bywash_request_complete(), by any thread: the client waits for that. One thread at a
 * time may take requests; others may complete some meanwhile.
 *
 * BYWASH_ERROR_TIMED_OUT: there was none. BYWASH_ERROR_CLOSED, BYWASH_ERROR_PEER_DIED: what the client had
 * submitted before came first, and there will be no more; that it died is not seen with a time of 0.
 * BYWASH_ERROR_BUSY: another thread waits. BYWASH_ERROR_FULL: the request is kept for the next call.
 */
int bywash_server_next(struct bywash_server server,
                       int64_t timeout_ns,
                       struct bywash_request *request,
                       struct bywash_request_contents *contents);

/**
 * For event loops. Take requests with a time of 0 until there is none; then call this. `ready` 0: from now on the
 * descriptor becomes readable when the client submits something or is gone. `ready` 1: something is there
 * already, take it. What made the descriptor readable is taken away by the next call of this, which also is who
 * hears that the client died.
 */
int bywash_server_arm(struct bywash_server server,
                      int *ready);

/**
 * Tells the channel's descriptor, for an event loop; see bywash_server_arm(). It stays the library's: poll it,
 * and do nothing else with it.
 */
int bywash_server_fd(struct bywash_server server,
                     int *fd);

/**
 * Tells who the client is, as the kernel says.
 */
int bywash_server_peer(struct bywash_server server, struct bywash_credentials *peer);

/**
 * Tells what this end has done so far. `size` is sizeof(struct bywash_channel_stats) as the program knows it: it
 * gets so many bytes, and counters that are newer than the library are 0.
 */
int bywash_server_stats(struct bywash_server server,
                        struct bywash_channel_stats *stats,
                        size_t size);

/**
 * Makes options: 10 s for every answer, a depth of 256 and an arena of 16 MiB or what the server allows, no connecting
 * again. Free them with bywash_storage_options_free(); connections that were made with them do not need them.
 */
int bywash_storage_options_new(struct bywash_storage_options *options);

/**
 * Frees options and zeroes the handle. Zero is left alone.
 */
int bywash_storage_options_free(struct bywash_storage_options *options);

/**
 * Sets what the server's reports call the program: 64 bytes at most (else connecting fails with BYWASH_ERROR_OPTION).
 * Default: its file's name.
 */
int bywash_storage_options_set_name(struct bywash_storage_options options,
                                    const char *name);

/**
 * Sets how long the server may take for every answer. Default 10 s.
 */
int bywash_storage_options_set_limit(struct bywash_storage_options options, uint64_t limit_ns);

/**
 * Sets how many requests can be under way at a time: a power of two (else BYWASH_ERROR_OPTION when there is to be a
 * channel).
 */
int bywash_storage_options_set_depth(struct bywash_storage_options options,
                                     uint32_t requests);

/**
 * Sets the bytes of the arena that what is read and written is copied through where it is not mapped.
 */
int bywash_storage_options_set_arena_bytes(struct bywash_storage_options options, size_t bytes);

/**
 * Sets how completions are waited for, to one of enum bywash_wait.
 */
int bywash_storage_options_set_wait(struct bywash_storage_options options, int wait);

/**
 * Sets which way to volumes is wanted, to one of enum bywash_choice.
 */
int bywash_storage_options_set_choice(struct bywash_storage_options options, int choice);

/**
 * Sets for how long it is tried to connect again when the server has gone; what was not completed is submitted again
 * then, but for comparing and writing (BYWASH_ERROR_UNKNOWN). 0, the default: what is under way fails with
 * BYWASH_ERROR_PEER_DIED, and so does what comes later.
 */
int bywash_storage_options_set_reconnect(struct bywash_storage_options options,
                                         uint64_t within_ns);

/**
 * Sets whether buffers of queues can be looked at and written where they are (bywash_buffer_map()); 0 is no, the default.
 * By anything else you promise that the server does not touch a buffer but while a request with it is under way. If the
 * promise is broken, what you look at changes under your eyes.
 */
int bywash_storage_options_set_trusted(struct bywash_storage_options options,
                                       int trusted);

/**
 * Connects to the device server that listens at a name. Zero options are the defaults.
 */
int bywash_storage_connect(const char *name,
                           struct bywash_storage_options options,
                           struct bywash_storage *storage);

/**
 * Closes a connection and zeroes the handle; volumes that were opened with it stay open. Zero is left alone.
 */
int bywash_storage_close(struct bywash_storage *storage);

/**
 * Tells which volumes you may see, as a JSON list. Free the text with bywash_text_free().
 */
int bywash_storage_volumes(struct bywash_storage storage, struct bywash_text *text);

/**
 * Tells what the server does, as JSON. Free the text with bywash_text_free().
 */
int bywash_storage_status(struct bywash_storage storage, struct bywash_text *text);

/**
 * Opens a volume by its name, for one of enum bywash_access.
 */
int bywash_volume_open(struct bywash_storage storage,
                       const char *name,
                       int access,
                       struct bywash_volume *volume);

/**
 * Opens a regular file or a block device that the program has opened: what may be done with it is what the descriptor's
 * access mode is. The descriptor is the library's from here on, and is closed even if this fails, except with
 * BYWASH_ERROR_ARGUMENT and BYWASH_ERROR_HANDLE.
 */
int bywash_volume_open_descriptor(struct bywash_storage storage,
                                  int fd,
                                  struct bywash_volume *volume);

/**
 * Closes a volume and zeroes the handle. Zero is left alone.
 */
int bywash_volume_close(struct bywash_volume *volume);

/**
 * Tells what a volume is; `size` is sizeof *info.
 */
int bywash_volume_get_info(struct bywash_volume volume, struct bywash_volume_info *info, size_t size);

/**
 * Tells why a volume is not mapped; the text is empty if it is. Free it with bywash_text_free().
 */
int bywash_volume_why_not_mapped(struct bywash_volume volume, struct bywash_text *text);

/**
 * Reads `length` bytes from `offset` on into `to`, all of them or none for certain.
 */
int bywash_volume_read(struct bywash_volume volume, uint64_t offset, uint8_t *to, size_t length);

/**
 * Writes `length` bytes from `from` on. They are durable after the next bywash_volume_flush(), or, if `durable` is not 0,
 * when this returns.
 */
int bywash_volume_write(struct bywash_volume volume,
                        uint64_t offset,
                        const uint8_t *from,
                        size_t length,
                        int durable);

/**
 * Everything whose writing had been completed before is durable, as far as the medium is.
 */
int bywash_volume_flush(struct bywash_volume volume);

/**
 * What these bytes are is of no matter any more: they may be anything until they are written again.
 */
int bywash_volume_discard(struct bywash_volume volume, uint64_t offset, uint64_t length);

/**
 * Changes bytes to zeros; `durable` as in bywash_volume_write().
 */
int bywash_volume_write_zeroes(struct bywash_volume volume, uint64_t offset, uint64_t length, int durable);

/**
 * Writes the `length` bytes at `written` if those at `expected` are there, as one step for all who do so through the
 * server; else BYWASH_ERROR_DIFFERS. Most devices do that with one block.
 */
int bywash_volume_compare_and_write(struct bywash_volume volume,
                                    uint64_t offset,
                                    const uint8_t *expected,
                                    const uint8_t *written,
                                    size_t length);

/**
 * Reads parts of several volumes of a connection by one request, 1 to BYWASH_VOLUME_PIECES_MAX (else
 * BYWASH_ERROR_PIECES), into memory that does not overlap. If something is wrong with one of them, nothing is read.
 */
int bywash_storage_read_many(struct bywash_storage storage,
                             const struct bywash_read_piece *pieces,
                             size_t count);

/**
 * Writes to parts of several volumes by one request, as bywash_storage_read_many(). If something is wrong with one of them,
 * nothing is written. With `durable` other than 0 all of it is durable when this returns.
 */
int bywash_storage_write_many(struct bywash_storage storage,
                              const struct bywash_write_piece *pieces,
                              size_t count,
                              int durable);

/**
 * Makes a queue with the options of a connection, over a connection of its own.
 */
int bywash_queue_new(struct bywash_storage storage, struct bywash_queue *queue);

/**
 * Closes a queue and zeroes the handle: its volumes are closed, and what is under way is not heard of any more; memory that
 * was to be read into is not touched from here on, and buffers that are under way are freed. Callbacks are stopped as by
 * bywash_queue_dispatch_stop(); called from within one, this does not wait for it, and nothing is called after it. Zero is
 * left alone. BYWASH_ERROR_BUSY: another thread is in a call with it, or stops its callbacks.
 */
int bywash_queue_close(struct bywash_queue *queue);

/**
 * Opens a volume for one of enum bywash_access, and tells the number by which requests of this queue name it.
 */
int bywash_queue_open(struct bywash_queue queue, const char *name, int access, uint64_t *volume);

/**
 * As bywash_queue_open(), of a file that the program has opened; see bywash_volume_open_descriptor().
 */
int bywash_queue_open_descriptor(struct bywash_queue queue, int fd, uint64_t *volume);

/**
 * Closes a volume of a queue. BYWASH_ERROR_BUSY: requests of it are under way, or were not reaped.
 */
int bywash_queue_close_volume(struct bywash_queue queue, uint64_t volume);

/**
 * Tells up to `most` requests that are done at `done`, and how many at `count`, waiting for the first one no longer than
 * `timeout_ns` (0: not at all; negative: as long as the options of the connection say).
 *
 * BYWASH_ERROR_TIMED_OUT; BYWASH_ERROR_IDLE: nothing is under way; BYWASH_ERROR_BUSY: callbacks reap; else what ended the
 * queue, when everything that was under way has been told.
 */
int bywash_queue_reap(struct bywash_queue queue,
                      int64_t timeout_ns,
                      struct bywash_done *done,
                      size_t most,
                      size_t *count);

/**
 * Waits until `least` requests are done and can be reaped, or all that are under way if these are fewer, but no longer than
 * `timeout_ns` (negative: as long as the options of the connection say): a thread that sleeps is woken once for all of them. A
 * queue that has ended is told of by bywash_queue_reap().
 *
 * BYWASH_ERROR_TIMED_OUT: what is done by then can be reaped. BYWASH_ERROR_BUSY: callbacks reap.
 */
int bywash_queue_wait(struct bywash_queue queue,
                      size_t least,
                      int64_t timeout_ns);

/**
 * Takes a buffer of `bytes` from the arena of a queue, for bywash_queue_read_buffer() and bywash_queue_write_buffer(), again
 * and again. What is in it is what was in it when it was used last, or zeros. It is a buffer as those of clients:
 * bywash_buffer_write(), bywash_buffer_read(), and of a server that is trusted bywash_buffer_map(). Free it by
 * bywash_buffer_free(), before or after the queue is closed.
 *
 * BYWASH_ERROR_TOO_LARGE: larger than the arena. BYWASH_ERROR_NO_ROOM: others have the arena.
 */
int bywash_queue_alloc(struct bywash_queue queue,
                       size_t bytes,
                       struct bywash_buffer *buffer);

/**
 * Tells how many requests were submitted and not reaped.
 */
int bywash_queue_under_way(struct bywash_queue queue, size_t *count);

/**
 * For event loops: tells at `is_done` 1 if something is done already; else 0, and the descriptor at `fd` becomes readable when
 * something is done or the server is gone. The descriptor stays the library's, and is another one after the queue has
 * connected again: ask each time.
 */
int bywash_queue_arm(struct bywash_queue queue,
                     int *is_done,
                     int *fd);

/**
 * Submits a read of `length` bytes from `offset` on. The memory at `to` is the library's until the request was reaped or the
 * queue is closed; it has the bytes when the request was reaped.
 *
 * BYWASH_ERROR_NO_ROOM, here and with every other request: as many are under way as may be, or the arena is used up.
 * Reap first.
 */
int bywash_queue_read(struct bywash_queue queue,
                      uint64_t volume,
                      uint64_t offset,
                      uint8_t *to,
                      size_t length,
                      uint64_t user_data);

/**
 * As bywash_queue_read(), into a buffer of bywash_queue_alloc(), as many bytes as its length: nothing is copied where the
 * volume is not mapped. The buffer is the queue's then: its handle becomes zero, and it comes back with what is told of the
 * request. On failure it stays, under a new handle that takes the old one's place.
 *
 * BYWASH_ERROR_UNFIT: the buffer is of a client.
 */
int bywash_queue_read_buffer(struct bywash_queue queue,
                             uint64_t volume,
                             uint64_t offset,
                             struct bywash_buffer *buffer,
                             uint64_t user_data);

/**
 * Submits a write of the `length` bytes at `from`, which are copied now. With `durable` other than 0 they are durable when it
 * is completed.
 */
int bywash_queue_write(struct bywash_queue queue,
                       uint64_t volume,
                       uint64_t offset,
                       const uint8_t *from,
                       size_t length,
                       int durable,
                       uint64_t user_data);

/**
 * As bywash_queue_write(), of what is in a buffer of bywash_queue_alloc(), which goes and comes back as with
 * bywash_queue_read_buffer().
 */
int bywash_queue_write_buffer(struct bywash_queue queue,
                              uint64_t volume,
                              uint64_t offset,
                              struct bywash_buffer *buffer,
                              int durable,
                              uint64_t user_data);

/**
 * Submits what bywash_volume_flush() does, for what had been reaped before.
 */
int bywash_queue_flush(struct bywash_queue queue, uint64_t volume, uint64_t user_data);

/**
 * Submits what bywash_volume_discard() does.
 */
int bywash_queue_discard(struct bywash_queue queue,
                         uint64_t volume,
                         uint64_t offset,
                         uint64_t length,
                         uint64_t user_data);

/**
 * Submits what bywash_volume_write_zeroes() does.
 */
int bywash_queue_write_zeroes(struct bywash_queue queue,
                              uint64_t volume,
                              uint64_t offset,
                              uint64_t length,
                              int durable,
                              uint64_t user_data);

/**
 * Submits what bywash_volume_compare_and_write() does; both are copied now.
 */
int bywash_queue_compare_and_write(struct bywash_queue queue,
                                   uint64_t volume,
                                   uint64_t offset,
                                   const uint8_t *expected,
                                   const uint8_t *written,
                                   size_t length,
                                   uint64_t user_data);

/**
 * Submits a read of parts of several volumes by one request, 1 to BYWASH_VOLUME_PIECES_MAX (else BYWASH_ERROR_PIECES). They go
 * to `to`, one behind the other; that memory is the library's as with bywash_queue_read().
 */
int bywash_queue_read_many(struct bywash_queue queue,
                           const struct bywash_range *ranges,
                           size_t count,
                           uint8_t *to,
                           uint64_t user_data);

/**
 * Submits a write to parts of several volumes by one request, as bywash_queue_read_many(), of what is at `from`, one behind the
 * other, and copied now. `durable` as in bywash_queue_write().
 */
int bywash_queue_write_many(struct bywash_queue queue,
                            const struct bywash_range *ranges,
                            size_t count,
                            const uint8_t *from,
                            int durable,
                            uint64_t user_data);

/**
 * Has `callback` called for each request that is done, in a thread of its own, until bywash_queue_dispatch_stop() or
 * bywash_queue_close(); and once with the error that ends the queue. Any thread may submit meanwhile, the callback
 * included, and nobody else can reap (BYWASH_ERROR_BUSY). What `callback` uses must be there until then.
 *
 * BYWASH_ERROR_IO: there can be no thread; then the queue is of no use any more.
 */
int bywash_queue_dispatch(struct bywash_queue queue,
                          bywash_queue_callback callback,
                          void *context);

/**
 * Waits until the callback that is running has returned, and ends callbacks: nothing is called after that, and
 * bywash_queue_reap() can be used again. Where there are no callbacks this does nothing.
 */
int bywash_queue_dispatch_stop(struct bywash_queue queue);

/**
 * Makes a volume of at least `bytes` on a device, of that owner and group; of the mode, as chmod(1) has it, the bits to
 * read and to write count. Only the server's own user and root may do this, and what follows here
 * (BYWASH_ERROR_DENIED).
 */
int bywash_storage_create(struct bywash_storage storage,
                          const char *name,
                          const char *device,
                          uint64_t bytes,
                          uint32_t owner,
                          uint32_t group,
                          uint16_t mode);

/**
 * Makes a volume larger or smaller; the rights to a smaller one are taken back.
 */
int bywash_storage_resize(struct bywash_storage storage, const char *name, uint64_t bytes);

/**
 * Gives a volume another name.
 */
int bywash_storage_rename(struct bywash_storage storage, const char *name, const char *to);

/**
 * Changes who may do what with a volume, and takes all rights to it back. What is negative stays as it is; `read_only` is
 * 0 or 1.
 */
int bywash_storage_permit(struct bywash_storage storage,
                          const char *name,
                          int64_t owner,
                          int64_t group,
                          int64_t mode,
                          int read_only);

/**
 * Removes a volume: the rights to it are taken back, and its contents are cleared.
 */
int bywash_storage_remove(struct bywash_storage storage, const char *name);

/**
 * Takes back all rights to a volume, and waits until no request by them is under way.
 */
int bywash_storage_revoke(struct bywash_storage storage, const char *name);

/**
 * Makes a flow from `source` to `sink`, which are endpoints as the command `bywash flow` has them:
 * "file:/a/b,offset=1M", a path alone, "tcp:example.org:9000", "unix-listen:/run/x", "-". Nothing is opened yet.
 * Free it by bywash_flow_free(); what was started with it does not need it.
 *
 * BYWASH_ERROR_OPTION: one of them is no endpoint; the message lists those that there are.
 */
int bywash_flow_new(const char *source,
                    const char *sink,
                    struct bywash_flow *flow);

/**
 * Frees a flow and zeroes the handle. Zero is left alone.
 */
int bywash_flow_free(struct bywash_flow *flow);

/**
 * Puts a stage behind those that are there: "hash:sha256", "tee:ENDPOINT", "limit:SIZE", "rate:SIZE" (a second),
 * "compress:zstd", "decompress:", "exec:COMMAND".
 *
 * BYWASH_ERROR_OPTION: it is no stage.
 */
int bywash_flow_stage(struct bywash_flow flow,
                      const char *stage);

/**
 * Lets a flow move by this mover and no other: "splice", "copy-range", "buffer" and so on, as in its plan.
 *
 * BYWASH_ERROR_OPTION: there is no such mover. That it cannot move this flow (BYWASH_ERROR_UNFIT) is seen when
 * the flow is planned or started.
 */
int bywash_flow_via(struct bywash_flow flow,
                    const char *mover);

/**
 * Sets whether pages may be sent as they are when they leave, and not as they were when they were read; 0 is no,
 * the default.
 */
int bywash_flow_by_reference(struct bywash_flow flow,
                             int by_reference);

/**
 * Sets the bytes of a block, from 512 to 4 MiB (else BYWASH_ERROR_OPTION when the flow is planned or started).
 * Default: the planner's choice.
 */
int bywash_flow_block(struct bywash_flow flow,
                      size_t bytes);

/**
 * Sets whether what was moved is on the device when the flow has ended; 0 is no, the default.
 */
int bywash_flow_sync(struct bywash_flow flow, int sync);

/**
 * Sets whether a flow between two sockets goes from the source to the sink only, and not back too; 0 is no, the
 * default.
 */
int bywash_flow_one_way(struct bywash_flow flow,
                        int one_way);

/**
 * Sets whether datagrams are sent at the highest rate at which nothing is lost, which is found first; 0 is no, the
 * default. The sink must be numbered datagrams, and a receiver must be there.
 */
int bywash_flow_finds_rate(struct bywash_flow flow,
                           int finds_rate);

/**
 * Tells what a flow would do, as JSON: a list with a plan for each of its parts, of which programs make more than
 * one. The same as `bywash flow --explain --json` prints. Nothing is made, connected or moved. Free the text.
 *
 * BYWASH_ERROR_OPTION, BYWASH_ERROR_UNFIT, BYWASH_ERROR_IO: it cannot be.
 */
int bywash_flow_plan(struct bywash_flow flow,
                     struct bywash_text *plan);

/**
 * As bywash_flow_plan(), for people to read: what would be done, the alternatives, and why not.
 */
int bywash_flow_explain(struct bywash_flow flow, struct bywash_text *text);

/**
 * Starts a flow, in a thread of its own. What fails after that is what bywash_running_wait() answers. Let it go by
 * bywash_running_free().
 *
 * BYWASH_ERROR_OPTION, BYWASH_ERROR_UNFIT, BYWASH_ERROR_IO: it cannot be.
 */
int bywash_flow_start(struct bywash_flow flow,
                      struct bywash_running *running);

/**
 * Tells how many bytes a flow has taken from its source so far.
 */
int bywash_running_moved(struct bywash_running running, uint64_t *bytes);

/**
 * Tells how many bytes there are in all; BYWASH_UNKNOWN where nobody knows, and until the source is open.
 */
int bywash_running_total(struct bywash_running running, uint64_t *bytes);

/**
 * Tells what there is to hear of a flow before its end, each notice on a line of its own, and each told once: the
 * fingerprint of a listener's certificate, say. The text is empty where there is nothing. Free it.
 */
int bywash_running_notices(struct bywash_running running,
                           struct bywash_text *notices);

/**
 * Ends a flow: it stops after the piece that it is moving, wherever it waits; bywash_running_wait() answers
 * BYWASH_ERROR_CANCELLED then. Where it has ended already this does nothing.
 */
int bywash_running_cancel(struct bywash_running running);

/**
 * Tells a descriptor that is readable from the flow's end on, for an event loop. It stays the library's: poll it,
 * and do nothing else with it.
 */
int bywash_running_fd(struct bywash_running running,
                      int *fd);

/**
 * Waits until a flow has ended, for `timeout_ns` nanoseconds (negative: for ever; 0: not at all). When it has, this
 * answers whether it came to its end, and else why not; and in either case `report` gets how far it came, if it is
 * not null. `size` is sizeof(struct bywash_report) as the program knows it: it gets so many bytes, and members
 * that are newer than the library are 0. To ask again answers the same.
 *
 * BYWASH_ERROR_TIMED_OUT: it goes on. BYWASH_ERROR_CANCELLED, BYWASH_ERROR_DATA, BYWASH_ERROR_LOST,
 * BYWASH_ERROR_PROGRAM, BYWASH_ERROR_IO: it did not come to its end.
 */
int bywash_running_wait(struct bywash_running running,
                        int64_t timeout_ns,
                        struct bywash_report *report,
                        size_t size);

/**
 * Tells all that is known of a flow that has ended, as JSON: its pieces and how each was moved, hashes, what is
 * kept of a file that is not whole, and as `error` why it did not come to its end, or null. The same as
 * `bywash flow --json` prints. Free the text.
 *
 * BYWASH_ERROR_TIMED_OUT: it has not ended.
 */
int bywash_running_report(struct bywash_running running,
                          struct bywash_text *report);

/**
 * Lets a started flow go and zeroes the handle. The flow goes on to its end, unless the program ends before; to end
 * it, bywash_running_cancel() and bywash_running_wait() first. Zero is left alone.
 */
int bywash_running_free(struct bywash_running *running);

/**
 * Tells where the characters of a text are: UTF-8, with a zero behind the last one, until the text is freed.
 * `length` is their number without that zero, and may be null.
 */
int bywash_text_get(struct bywash_text text, const char **characters, size_t *length);

/**
 * Frees a text and zeroes the handle. Zero is left alone.
 */
int bywash_text_free(struct bywash_text *text);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* BYWASH_H */
