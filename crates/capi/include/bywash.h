/* Bywash: memory that moves between programs instead of being copied (containers and paths), requests from one
 * program to another without a system call (channels), volumes of a device server (clients and queues), data flows
 * from a source to a sink, and windows whose frames are not copied (surfaces).
 *
 * Generated from crates/capi/src; do not edit. BYWASH_UPDATE_HEADER=1 cargo test -p bywash-capi --test header
 *
 * A program allocates a container on a path to another program, fills the container and ships it. The other program
 * receives it, maps it or not, and ships it on or frees it.
 *
 * The client of a channel submits requests, with buffers if needed, and reaps completions. The server takes requests
 * and completes them, in any order. Neither has to trust the other.
 *
 * A device server shares volumes among programs that need not trust each other. A program opens a volume, then reads
 * and writes whole blocks: by calls that wait, or by many requests at a time through a queue. Where the device is memory
 * that can be mapped, reads and writes are copies; elsewhere they go through a channel to the server.
 *
 * A flow has a source, stages and a sink: files, sockets, pipes, programs, described as text. A flow can be planned and
 * explained; a flow that was started can be watched, cancelled and waited for.
 *
 * A surface is a window of a display server, or a screen. A program draws into a frame, in memory that the display has
 * mapped, and presents it; then the frame is the display's until that returns it.
 *
 * Functions return 0, or a negative number of enum bywash_error; bywash_last_error_message() returns the message.
 *
 * Handles are small structs, passed by value; zero is no handle (struct bywash_path path = {0}). Functions that end a
 * handle take its address and set the handle to zero. Every other copy of the handle is dead then: a function that gets
 * one returns BYWASH_ERROR_HANDLE and does nothing. Checking a handle costs about 15 ns.
 *
 * Pointers must be valid or null; where null is not allowed a function returns BYWASH_ERROR_ARGUMENT. A function that
 * fails leaves its output arguments unchanged, unless its comment says otherwise.
 *
 * Memory to be copied from or to belongs to the program, and is not part of a container or a buffer.
 *
 * Threads: several threads at a time may use a path, a listener, an end of a channel, a client of a device server, a
 * volume and a started flow. Of the threads that use a channel's client one at a time may wait for completions, and of
 * those that use a channel's server one at a time may wait for requests. Every other handle is used by one thread at a
 * time, and may be passed to another thread; BYWASH_ERROR_BUSY reports a violation.
 *
 * Processes: handles of the parent are invalid in a forked child (BYWASH_ERROR_FORKED). Fork first, and let each process
 * make its own end. In a child of a process with several threads, call nothing of this header before exec.
 *
 * Signals do not interrupt calls that wait. No exception or panic leaves a function: if the library finds its own state
 * corrupt it aborts the program.
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
 * Timeout, in nanoseconds, of a call that waits for ever. Every negative number means the same.
 */
#define BYWASH_FOREVER -1

/**
 * Greatest number of pieces in a message.
 */
#define BYWASH_PIECES_MAX 64

/**
 * Number of arguments of a request.
 */
#define BYWASH_ARGUMENTS 6

/**
 * Greatest number of pieces in a request to volumes.
 */
#define BYWASH_VOLUME_PIECES_MAX 32

/**
 * Number of bytes in all, of a flow whose source has no known size.
 */
#define BYWASH_UNKNOWN UINT64_MAX

/**
 * Results of functions: 0 is success, every error is negative.
 */
typedef enum bywash_error {
  /**
   * Success.
   */
  BYWASH_OK = 0,
  /**
   * The handle is zero, was freed, closed or shipped, or never was one.
   */
  BYWASH_ERROR_HANDLE = -1,
  /**
   * Another thread is in a call with this handle, which one thread at a time may use; or a dispatcher
   * reaps.
   */
  BYWASH_ERROR_BUSY = -2,
  /**
   * A pointer is null, or a number is not one of its enumeration.
   */
  BYWASH_ERROR_ARGUMENT = -3,
  /**
   * The timeout expired; with a timeout of 0, nothing was ready.
   */
  BYWASH_ERROR_TIMED_OUT = -4,
  /**
   * The peer has closed its end, and everything that the peer had sent has been received; or the user has closed the
   * window.
   */
  BYWASH_ERROR_CLOSED = -5,
  /**
   * The peer died without closing its end; or the display is gone.
   */
  BYWASH_ERROR_PEER_DIED = -6,
  /**
   * The peer broke the protocol. The path or channel has ended.
   */
  BYWASH_ERROR_PEER = -7,
  /**
   * The two ends have incompatible options or versions.
   */
  BYWASH_ERROR_MISFIT = -8,
  /**
   * The requested container or buffer is larger than the arena allows.
   */
  BYWASH_ERROR_TOO_LARGE = -9,
  /**
   * The number of pieces is out of range: a message has 1 to BYWASH_PIECES_MAX (on sealed paths 1 to 16),
   * a request to volumes 1 to 32.
   */
  BYWASH_ERROR_PIECES = -10,
  /**
   * The contents cannot be mapped. Copy them out.
   */
  BYWASH_ERROR_NOT_MAPPED = -11,
  /**
   * This container cannot be shipped on this path, this buffer is of another channel or queue, this frame is of
   * another surface, this mover cannot move this flow, or this display cannot show a surface.
   */
  BYWASH_ERROR_UNFIT = -12,
  /**
   * The handle belongs to the parent of this forked process.
   */
  BYWASH_ERROR_FORKED = -13,
  /**
   * An option, an endpoint or a stage has an invalid value, or no display is named.
   */
  BYWASH_ERROR_OPTION = -14,
  /**
   * A system call failed; bywash_last_error_number() returns its errno.
   */
  BYWASH_ERROR_IO = -15,
  /**
   * A million handles of one kind are in use. The value that needed a new handle was freed.
   */
  BYWASH_ERROR_FULL = -16,
  /**
   * The arena has no free memory at present, as many requests are in flight as the channel is deep, or the program
   * holds all frames of the surface.
   */
  BYWASH_ERROR_NO_ROOM = -17,
  /**
   * The flow was cancelled.
   */
  BYWASH_ERROR_CANCELLED = -18,
  /**
   * The data of a flow is wrong: the source shrank, is not compressed as stated, or has another hash than
   * expected.
   */
  BYWASH_ERROR_DATA = -19,
  /**
   * Datagrams were lost on the way.
   */
  BYWASH_ERROR_LOST = -20,
  /**
   * A program that is a stage or an endpoint of a flow failed.
   */
  BYWASH_ERROR_PROGRAM = -21,
  /**
   * The user has no right to do this with the volume, or the volume was opened without that right.
   */
  BYWASH_ERROR_DENIED = -22,
  /**
   * No volume has this name.
   */
  BYWASH_ERROR_MISSING = -23,
  /**
   * The device server refused the request for another reason, or the display did; the message names it.
   */
  BYWASH_ERROR_REFUSED = -24,
  /**
   * The grant to the volume was revoked. Open the volume again, if that is still allowed.
   */
  BYWASH_ERROR_REVOKED = -25,
  /**
   * The range is not a multiple of the block size, exceeds the volume, or the lengths differ.
   */
  BYWASH_ERROR_RANGE = -26,
  /**
   * The device failed, is full, exceeded its timeout, or does not support the operation.
   */
  BYWASH_ERROR_DEVICE = -27,
  /**
   * The volume held other bytes than expected, and nothing was written.
   */
  BYWASH_ERROR_DIFFERS = -28,
  /**
   * The server ended during a compare-and-write: whether the write happened is unknown.
   */
  BYWASH_ERROR_UNKNOWN = -29,
  /**
   * No request is in flight, so that waiting would never end.
   */
  BYWASH_ERROR_IDLE = -30,
} bywash_error;

/**
 * Treatment of received containers, and manner of shipping. Each end chooses its own class, but both ends or
 * neither must be sealed.
 */
typedef enum bywash_class {
  /**
   * Received contents are copied out before use, since the peer could change them meanwhile. The default,
   * and the right choice if in doubt.
   */
  BYWASH_CLASS_CHECKED = 0,
  /**
   * Received contents are used in place. By choosing this class you promise that the peer does not write a
   * container between shipping it and getting it back. A peer that uses only this library keeps that
   * promise; a peer written or compromised by somebody else may not. If the promise is broken, contents
   * change while you read them.
   */
  BYWASH_CLASS_TRUSTED = 1,
  /**
   * Like BYWASH_CLASS_TRUSTED, and a receiver may also write containers of the other end in place, if both
   * ends choose this class. You also promise that the peer writes only containers that it holds.
   */
  BYWASH_CLASS_TRUSTED_TO_WRITE = 2,
  /**
   * Each container is memory of its own, sealed against writing when it is shipped. The receiver can use
   * it in place without any promise, keep it, and ship it on. Each container costs some system calls.
   */
  BYWASH_CLASS_SEALED = 3,
  /**
   * Received containers are never mapped at this end, only shipped on.
   */
  BYWASH_CLASS_FORWARD = 4,
} bywash_class;

/**
 * Method of waiting for the other end.
 */
typedef enum bywash_wait {
  /**
   * Spin for up to 100 us where spinning has paid recently, then sleep. The default.
   */
  BYWASH_WAIT_ADAPTIVE = 0,
  /**
   * Spin and never sleep: the shortest latency, at the price of a processor core.
   */
  BYWASH_WAIT_SPIN = 1,
  /**
   * Sleep at once: waiting costs no processor time, and the death of the peer is noticed at once.
   */
  BYWASH_WAIT_SLEEP = 2,
} bywash_wait;

/**
 * Use of huge pages (2 MiB) for an arena.
 */
typedef enum bywash_huge_pages {
  /**
   * Ordinary memory, all of it allocated at once and collapsed into huge pages where the kernel can.
   */
  BYWASH_HUGE_PAGES_COLLAPSE = 0,
  /**
   * Reserved huge pages (/proc/sys/vm/nr_hugepages); BYWASH_ERROR_IO if too few are reserved.
   */
  BYWASH_HUGE_PAGES_RESERVED = 1,
  /**
   * No huge pages; pages are allocated when they are first used. The default.
   */
  BYWASH_HUGE_PAGES_NO = 2,
} bywash_huge_pages;

/**
 * Rights to a volume.
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
 * Choice between mapped memory and the channel for access to volumes.
 */
typedef enum bywash_choice {
  /**
   * Mapped memory where the device is memory that can be mapped, else the channel. The default.
   */
  BYWASH_CHOICE_AUTOMATIC = 0,
  /**
   * Mapped memory; opening a volume that cannot be mapped fails.
   */
  BYWASH_CHOICE_MAPPED = 1,
  /**
   * The channel, always.
   */
  BYWASH_CHOICE_CHANNEL = 2,
} bywash_choice;

/**
 * Trust in the processes that get the descriptor of a pool.
 */
typedef enum bywash_trust {
  /**
   * They may read. The kernel refuses every attempt to write.
   */
  BYWASH_TRUST_READER = 0,
  /**
   * They may also write, at any time, as a Wayland compositor does: do not rely on what the memory holds.
   */
  BYWASH_TRUST_WRITER = 1,
} bywash_trust;

/**
 * Kind of a display.
 */
typedef enum bywash_display {
  /**
   * The display that the environment names: Wayland by WAYLAND_DISPLAY, X11 by DISPLAY. The default.
   */
  BYWASH_DISPLAY_DETECT = 0,
  /**
   * A Wayland compositor, which maps the frames for reading and writing.
   */
  BYWASH_DISPLAY_WAYLAND = 1,
  /**
   * An X server of this machine, which maps the frames for reading.
   */
  BYWASH_DISPLAY_X11 = 2,
  /**
   * A screen of a display adapter without a display server.
   */
  BYWASH_DISPLAY_KMS = 3,
} bywash_display;

/**
 * Options of one end of a path. Used by one thread at a time.
 */
typedef struct bywash_options {
  /**
   * Number of the handle; 0 stands for the defaults where a path is made.
   */
  uint64_t id;
} bywash_options;

/**
 * Listener that accepts peers at a name. May be used by several threads at a time.
 */
typedef struct bywash_listener {
  /**
   * Number of the handle; 0 is no handle.
   */
  uint64_t id;
} bywash_listener;

/**
 * One end of a path. May be used by several threads at a time.
 */
typedef struct bywash_path {
  /**
   * Number of the handle; 0 is no handle.
   */
  uint64_t id;
} bywash_path;

/**
 * Process, user and group of a peer, as the kernel states them.
 */
typedef struct bywash_credentials {
  /**
   * Process number in the namespace of this process; 0 if the peer has none there.
   */
  uint32_t pid;
  /**
   * Effective user number.
   */
  uint32_t uid;
  /**
   * Effective group number.
   */
  uint32_t gid;
} bywash_credentials;

/**
 * Counters of one end of a path. Counts may be slightly off if several threads use the end.
 */
typedef struct bywash_stats {
  /**
   * Messages shipped.
   */
  uint64_t shipped;
  /**
   * Bytes in these messages.
   */
  uint64_t shipped_bytes;
  /**
   * Messages received.
   */
  uint64_t received;
  /**
   * Bytes in these messages.
   */
  uint64_t received_bytes;
  /**
   * Messages, shipped or received, that were small enough to be copied into an entry of a ring.
   */
  uint64_t inline_messages;
  /**
   * Bytes that were copied out of containers in an arena.
   */
  uint64_t copied_out_bytes;
  /**
   * Received containers that were shipped on.
   */
  uint64_t forwarded;
  /**
   * Waits that ended while spinning.
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
   * Times that this end woke the peer by a futex.
   */
  uint64_t futex_wakes;
  /**
   * Times that this end woke the peer through the socket.
   */
  uint64_t doorbells;
  /**
   * Times that a call found no free memory or ring entry at first.
   */
  uint64_t no_room;
  /**
   * Size of this end's arena, in bytes.
   */
  uint64_t arena_bytes;
  /**
   * Containers of the arena that this program holds.
   */
  uint64_t arena_held;
  /**
   * Bytes of the arena in containers that this program holds.
   */
  uint64_t arena_held_bytes;
  /**
   * Containers of the arena that the peer holds.
   */
  uint64_t arena_shipped;
  /**
   * Bytes of the arena in containers that the peer holds.
   */
  uint64_t arena_shipped_bytes;
  /**
   * Size of the largest container that could be allocated in the arena, in bytes.
   */
  uint64_t arena_largest_free;
} bywash_stats;

/**
 * Container: memory that can be filled and shipped. Used by one thread at a time.
 */
typedef struct bywash_container {
  /**
   * Number of the handle; 0 is no handle.
   */
  uint64_t id;
} bywash_container;

/**
 * Memory of a container, for a process that maps it by itself, such as a display server.
 */
typedef struct bywash_memory_range {
  /**
   * Descriptor of the memory file, which remains the library's: pass it on through a socket, or duplicate it. It is
   * valid as long as the container is.
   */
  int fd;
  /**
   * Offset of the first byte in the file, in bytes.
   */
  size_t offset;
  /**
   * Length, in bytes.
   */
  size_t length;
} bywash_memory_range;

/**
 * Received message: one container, or several that were shipped together. Used by one thread at a time.
 */
typedef struct bywash_message {
  /**
   * Number of the handle; 0 is no handle.
   */
  uint64_t id;
} bywash_message;

/**
 * Container or message to be shipped; the other handle is zero.
 */
typedef struct bywash_shipment {
  /**
   * A container of the path on which it is shipped.
   */
  struct bywash_container container;
  /**
   * A message received on any path, all pieces of which are shipped.
   */
  struct bywash_message message;
} bywash_shipment;

/**
 * Pool: an arena whose containers go to a process that maps it by itself. Used by one thread at a time.
 */
typedef struct bywash_pool {
  /**
   * Number of the handle; 0 is no handle.
   */
  uint64_t id;
} bywash_pool;

/**
 * Container of a pool. Used by one thread at a time.
 */
typedef struct bywash_pool_container {
  /**
   * Number of the handle; 0 is no handle.
   */
  uint64_t id;
} bywash_pool_container;

/**
 * Options of the client's end of a channel. Used by one thread at a time.
 */
typedef struct bywash_channel_client_options {
  /**
   * Number of the handle; 0 stands for the defaults where a channel is made.
   */
  uint64_t id;
} bywash_channel_client_options;

/**
 * Options of the server's end of a channel: limits for its client, and its method of waiting. Used by one
 * thread at a time.
 */
typedef struct bywash_channel_server_options {
  /**
   * Number of the handle; 0 stands for the defaults where a channel is made.
   */
  uint64_t id;
} bywash_channel_server_options;

/**
 * Client's end of a channel. May be used by several threads at a time; one of them may wait for completions.
 */
typedef struct bywash_channel_client {
  /**
   * Number of the handle; 0 is no handle.
   */
  uint64_t id;
} bywash_channel_client;

/**
 * Buffer for requests, in the arena of a channel's client or of a queue. Used by one thread at a time.
 */
typedef struct bywash_buffer {
  /**
   * Number of the handle; 0 is no handle.
   */
  uint64_t id;
} bywash_buffer;

/**
 * Request to be submitted. The service defines the meaning of opcode, flags and arguments. Zero the struct,
 * then set the fields that you need. The layout is part of the protocol and will not change.
 */
typedef struct bywash_submission {
  /**
   * Operation; the service defines the numbers.
   */
  uint8_t opcode;
  /**
   * Flags of the operation; the service defines the bits.
   */
  uint8_t flags;
  /**
   * Arguments of the operation.
   */
  uint64_t arguments[BYWASH_ARGUMENTS];
  /**
   * Buffer of the request, or zero.
   */
  struct bywash_buffer buffer;
  /**
   * Value for the program's own use, such as a pointer. The completion has the same value; the server
   * never sees it.
   */
  uint64_t user_data;
} bywash_submission;

/**
 * Completion of a request. The layout is part of the protocol and will not change.
 */
typedef struct bywash_completion {
  /**
   * Result value, defined by the service.
   */
  uint64_t value;
  /**
   * Value of `user_data` in the request.
   */
  uint64_t user_data;
  /**
   * Buffer of the request under a new handle, to be reused or freed. Zero if the request had none.
   */
  struct bywash_buffer buffer;
  /**
   * Tag of the request.
   */
  uint16_t tag;
  /**
   * Status: 0 is success, the service defines all other numbers.
   */
  uint16_t status;
} bywash_completion;

/**
 * Counters of one end of a channel. Counts may be slightly off if several threads use the end.
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
   * Waits that ended while spinning.
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
   * Times that this end woke the peer by a futex.
   */
  uint64_t futex_wakes;
  /**
   * Times that this end woke the peer through the socket.
   */
  uint64_t doorbells;
} bywash_channel_stats;

/**
 * Callback of bywash_channel_client_dispatch(), called in one thread for one completion after the other.
 * `context` is the argument of bywash_channel_client_dispatch(). If `error` is BYWASH_OK, `completion` is
 * valid until the callback returns, and its buffer belongs to the callback, which uses or frees it. Any
 * other `error` ended the channel: `completion` is null, bywash_last_error_message() returns the message,
 * and no callback follows. (For BYWASH_ERROR_FULL see bywash_channel_client_reap().)
 *
 * A callback may call every function of this header except bywash_channel_client_dispatch_stop() for its own
 * client.
 */
typedef void (*bywash_callback)(void *context, int error, const struct bywash_completion *completion);

/**
 * Request that a server has taken and must complete by bywash_request_complete(). Any thread may use it, one
 * at a time.
 */
typedef struct bywash_request {
  /**
   * Number of the handle; 0 is no handle.
   */
  uint64_t id;
} bywash_request;

/**
 * Server's end of a channel. May be used by several threads at a time; one of them may wait for requests.
 */
typedef struct bywash_channel_server {
  /**
   * Number of the handle; 0 is no handle.
   */
  uint64_t id;
} bywash_channel_server;

/**
 * Contents of a request, exactly as the client sent them: the library has checked only the buffer. The
 * service defines their meaning. The layout is part of the protocol and will not change.
 */
typedef struct bywash_request_contents {
  /**
   * Operation; the service defines the numbers.
   */
  uint8_t opcode;
  /**
   * Flags of the operation; the service defines the bits.
   */
  uint8_t flags;
  /**
   * Arguments of the operation.
   */
  uint64_t arguments[BYWASH_ARGUMENTS];
  /**
   * Size of the request's buffer, in bytes; 0 if the request has none.
   */
  size_t length;
} bywash_request_contents;

/**
 * Options of a connection to a device server. Used by one thread at a time.
 */
typedef struct bywash_client_options {
  /**
   * Number of the handle; 0 stands for the defaults.
   */
  uint64_t id;
} bywash_client_options;

/**
 * A connection to a device server. May be used by several threads at a time.
 */
typedef struct bywash_client {
  /**
   * Number of the handle; 0 is no handle.
   */
  uint64_t id;
} bywash_client;

/**
 * Text allocated by the library. Used by one thread at a time.
 */
typedef struct bywash_text {
  /**
   * Number of the handle; 0 is no handle.
   */
  uint64_t id;
} bywash_text;

/**
 * An open volume. May be used by several threads at a time.
 */
typedef struct bywash_volume {
  /**
   * Number of the handle; 0 is no handle.
   */
  uint64_t id;
} bywash_volume;

/**
 * Properties of an open volume.
 */
typedef struct bywash_volume_info {
  /**
   * Size of the volume, in bytes.
   */
  uint64_t bytes;
  /**
   * Block size, in bytes. Offsets and lengths are multiples of the block size.
   */
  uint32_t block;
  /**
   * Rights with which the volume is open: one of enum bywash_access.
   */
  uint32_t access;
  /**
   * 1 if the volume's memory is mapped, so that the server takes no part in reads and writes; 0 if
   * requests go through the channel.
   */
  uint32_t is_mapped;
} bywash_volume_info;

/**
 * Range of a volume to be read, and memory for the bytes.
 */
typedef struct bywash_read_piece {
  /**
   * Volume of the range.
   */
  struct bywash_volume volume;
  /**
   * Offset of the first byte in the volume.
   */
  uint64_t offset;
  /**
   * Memory for the bytes that are read.
   */
  uint8_t *to;
  /**
   * Number of bytes.
   */
  size_t length;
} bywash_read_piece;

/**
 * Range of a volume to be written, and the bytes.
 */
typedef struct bywash_write_piece {
  /**
   * Volume of the range.
   */
  struct bywash_volume volume;
  /**
   * Offset of the first byte in the volume.
   */
  uint64_t offset;
  /**
   * Bytes to be written.
   */
  const uint8_t *from;
  /**
   * Number of bytes.
   */
  size_t length;
} bywash_write_piece;

/**
 * Queue of requests that are submitted without waiting, over a connection of its own. Used by one thread at
 * a time; by any number of threads while a callback is set.
 */
typedef struct bywash_queue {
  /**
   * Number of the handle; 0 is no handle.
   */
  uint64_t id;
} bywash_queue;

/**
 * Completion of a request of a queue. The layout will not change.
 */
typedef struct bywash_done {
  /**
   * Value of `user_data` in the request.
   */
  uint64_t user_data;
  /**
   * Buffer of the request under a new handle, to be reused or freed. Zero if the request had none, and if
   * the buffer is lost because the device exceeded its timeout or the server ended.
   */
  struct bywash_buffer buffer;
  /**
   * BYWASH_OK, or one of enum bywash_error. bywash_last_error_message() returns the message of the last
   * failed request among those that one call reaped. BYWASH_ERROR_FULL: the request succeeded, and its
   * buffer was freed.
   */
  int error;
} bywash_done;

/**
 * Range of a volume of a queue.
 */
typedef struct bywash_range {
  /**
   * Number of the volume, from bywash_queue_open().
   */
  uint64_t volume;
  /**
   * Offset of the first byte in the volume.
   */
  uint64_t offset;
  /**
   * Number of bytes.
   */
  size_t length;
} bywash_range;

/**
 * Callback of bywash_queue_dispatch(), called in one thread for one completed request after the other. `context` is the
 * argument of bywash_queue_dispatch(). If `error` is BYWASH_OK, `done` is valid until the callback returns, its buffer
 * belongs to the callback, and its field `error` is the result of the request. Any other `error` ended the queue: `done` is
 * null, bywash_last_error_message() returns the message, and no callback follows.
 *
 * A callback may call every function of this header except bywash_queue_dispatch_stop() for its own queue.
 */
typedef void (*bywash_queue_callback)(void *context, int error, const struct bywash_done *done);

/**
 * Data flow from a source to a sink. A flow can be planned, explained and started, more than once. Used by one thread at a
 * time.
 */
typedef struct bywash_flow {
  /**
   * Number of the handle; 0 is no handle.
   */
  uint64_t id;
} bywash_flow;

/**
 * A flow that was started. May be used by several threads at a time.
 */
typedef struct bywash_running {
  /**
   * Number of the handle; 0 is no handle.
   */
  uint64_t id;
} bywash_running;

/**
 * Result of a flow. bywash_running_report() returns more.
 */
typedef struct bywash_report {
  /**
   * Bytes taken from the source, holes included.
   */
  uint64_t bytes;
  /**
   * Bytes of these that were holes and remained holes.
   */
  uint64_t holes;
  /**
   * Duration, in seconds.
   */
  double seconds;
  /**
   * Processor time, in seconds, of the flow's threads and of the programs that are its stages or
   * endpoints.
   */
  double cpu_seconds;
  /**
   * 1 if the sink received all that the source sent, else 0.
   */
  uint32_t whole;
  /**
   * Number of parts that the flow consisted of: one, and one more for each program and for the opposite
   * direction.
   */
  uint32_t pieces;
} bywash_report;

/**
 * Options of a surface. Used by one thread at a time.
 */
typedef struct bywash_surface_options {
  /**
   * Number of the handle; 0 is no handle.
   */
  uint64_t id;
} bywash_surface_options;

/**
 * Surface: a window of a display, or a screen, whose frames are memory that the display has mapped. Used by one thread at
 * a time.
 */
typedef struct bywash_surface {
  /**
   * Number of the handle; 0 is no handle.
   */
  uint64_t id;
} bywash_surface;

/**
 * Frame of a surface, which the program draws into. Used by one thread at a time.
 */
typedef struct bywash_frame {
  /**
   * Number of the handle; 0 is no handle.
   */
  uint64_t id;
} bywash_frame;

/**
 * Pixels of a frame.
 */
typedef struct bywash_pixels {
  /**
   * First byte of the upper left pixel. A pixel is a word of 32 bits in little-endian order: blue in the lowest byte,
   * then green, then red; the highest byte is ignored.
   */
  uint8_t *bytes;
  /**
   * Number of bytes from there up to the end of the last pixel.
   */
  size_t length;
  /**
   * Distance between the beginnings of two rows, in bytes: at least 4 * width.
   */
  size_t row_bytes;
  /**
   * Width, in pixels.
   */
  uint32_t width;
  /**
   * Height, in pixels.
   */
  uint32_t height;
} bywash_pixels;

/**
 * Rectangle of a frame, in pixels.
 */
typedef struct bywash_rectangle {
  /**
   * Column of the left edge.
   */
  uint32_t x;
  /**
   * Row of the upper edge.
   */
  uint32_t y;
  /**
   * Number of columns.
   */
  uint32_t width;
  /**
   * Number of rows.
   */
  uint32_t height;
} bywash_rectangle;

/**
 * Counts of a surface.
 */
typedef struct bywash_surface_stats {
  /**
   * Frames that were handed to the display.
   */
  uint64_t presented;
  /**
   * Frames that the display has returned.
   */
  uint64_t returned;
  /**
   * Frames that followed though the display had not asked for them, since nobody sees the window.
   */
  uint64_t unseen;
} bywash_surface_stats;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the message of the last function that failed on this thread: the problem, the object, and the
 * remedy. Empty if none has failed; never null. Valid until another function fails on this thread, or the
 * thread ends.
 */
const char *bywash_last_error_message(void);

/**
 * Returns the errno of the last failure on this thread if that was BYWASH_ERROR_IO, else 0.
 */
int bywash_last_error_number(void);

/**
 * Returns the version of the library that the program runs with: major * 1000000 + minor * 1000 + patch.
 * Compare it with BYWASH_VERSION, the version that the program was compiled for.
 */
uint32_t bywash_version(void);

/**
 * Creates options with the defaults: a checked end with an arena of 16 MiB. Free them with
 * bywash_options_free(), at any time after the last path was made with them.
 */
int bywash_options_new(struct bywash_options *options);

/**
 * Frees options and zeroes the handle. A zero handle is ignored.
 */
int bywash_options_free(struct bywash_options *options);

/**
 * Sets the class, one of enum bywash_class, which states what the trusted classes require you to promise.
 */
int bywash_options_set_class(struct bywash_options options, int which);

/**
 * Sets the size of this end's arena, in bytes: the greatest sum of containers that are being filled or are
 * held by the peer. Rounded up to pages, from 2 MiB on to multiples of 2 MiB. With 0 this end ships only
 * what it received. Default 16 MiB.
 */
int bywash_options_set_arena_bytes(struct bywash_options options, size_t bytes);

/**
 * Sets the use of huge pages for the arena, one of enum bywash_huge_pages.
 */
int bywash_options_set_huge_pages(struct bywash_options options, int huge_pages);

/**
 * Sets the greatest number of messages in flight in each direction: a power of two up to 4096 (else making a
 * path fails with BYWASH_ERROR_OPTION). Default 256.
 */
int bywash_options_set_depth(struct bywash_options options, uint32_t messages);

/**
 * Sets the greatest number of containers that the peer can hold: a power of two up to 65536 (else making a
 * path fails with BYWASH_ERROR_OPTION). Default 1024.
 */
int bywash_options_set_containers_out_max(struct bywash_options options, uint32_t containers);

/**
 * Sets the method of waiting, one of enum bywash_wait.
 */
int bywash_options_set_wait(struct bywash_options options, int wait);

/**
 * Sets the greatest sum of the peer's arena and the arenas that the peer passes on, in bytes. Default 64
 * MiB. A peer with more is refused with BYWASH_ERROR_MISFIT.
 */
int bywash_options_set_peer_arena_bytes_max(struct bywash_options options, size_t bytes);

/**
 * Sets the timeout of the handshake, in nanoseconds, when a path is made. Not negative. Default 10 s.
 */
int bywash_options_set_handshake_timeout(struct bywash_options options, int64_t limit_ns);

/**
 * Listens at a name in the file system; the name remains until you remove it. A socket there that no process listens at
 * is replaced; anything else there is BYWASH_ERROR_IO. The permissions of the name decide who may connect. The call that
 * accepts a peer decides what the peer gets: a path by bywash_accept(), a channel by bywash_channel_server_accept().
 */
int bywash_listen(const char *name,
                  struct bywash_listener *listener);

/**
 * Waits for a peer and makes a path to it. The handshakes of several peers run side by side, so that a silent peer delays
 * no other. A peer with incompatible options fails this call only; the listener remains usable.
 */
int bywash_accept(struct bywash_listener listener,
                  struct bywash_options options,
                  struct bywash_path *path);

/**
 * Like bywash_accept(), with a timeout in nanoseconds that includes the handshake; a negative timeout waits for ever.
 */
int bywash_accept_within(struct bywash_listener listener,
                         struct bywash_options options,
                         int64_t timeout_ns,
                         struct bywash_path *path);

/**
 * Waits for a peer and returns the descriptor of its connection, which then belongs to the program: pass it to
 * bywash_path_over() or bywash_channel_server_over(), or close it.
 */
int bywash_accept_fd(struct bywash_listener listener,
                     int *fd);

/**
 * Returns the listener's descriptor, which is readable when a peer may be waiting. The descriptor remains the library's.
 */
int bywash_listener_fd(struct bywash_listener listener,
                       int *fd);

/**
 * Closes a listener and sets the handle to zero. The socket file remains. A zero handle is ignored.
 */
int bywash_listener_close(struct bywash_listener *listener);

/**
 * Connects to the listener at a name and makes a path.
 */
int bywash_connect(const char *name, struct bywash_options options, struct bywash_path *path);

/**
 * Creates two connected descriptors, both close-on-exec: keep one and give the other to the peer, such as a child. Each
 * process calls bywash_path_over() on its own descriptor, after the fork.
 */
int bywash_socket_pair(int *fds);

/**
 * Makes a path over a connected descriptor, from bywash_socket_pair() or inherited. Waits until the other end does the
 * same. The library takes the descriptor over and closes it even if the call fails, except with BYWASH_ERROR_ARGUMENT and
 * BYWASH_ERROR_HANDLE.
 */
int bywash_path_over(int fd,
                     struct bywash_options options,
                     struct bywash_path *path);

/**
 * Closes this end and zeroes the handle. The peer receives what was shipped before, then BYWASH_ERROR_CLOSED. Messages and
 * containers of the path remain valid. The path closes after the calls of other threads that use it have returned. A
 * zero handle is ignored.
 */
int bywash_path_close(struct bywash_path *path);

/**
 * Returns the credentials of the peer, as the kernel states them.
 */
int bywash_path_peer(struct bywash_path path, struct bywash_credentials *peer);

/**
 * Returns the counters of this end. `size` is sizeof(struct bywash_stats) as the program was compiled; the call writes
 * that many bytes, and counters that the library does not know are 0.
 */
int bywash_path_stats(struct bywash_path path,
                      struct bywash_stats *stats,
                      size_t size);

/**
 * Returns the path's descriptor for an event loop; see bywash_path_arm(). The descriptor remains the library's: poll it,
 * and do nothing else with it.
 */
int bywash_path_fd(struct bywash_path path,
                   int *fd);

/**
 * Prepares the descriptor for an event loop. Receive with a timeout of 0 until BYWASH_ERROR_TIMED_OUT, then call this
 * function. With `ready` 0 the descriptor becomes readable when the peer ships something or ends. With `ready` 1 a message
 * is ready: receive it. The next call makes the descriptor unreadable again.
 */
int bywash_path_arm(struct bywash_path path,
                    int *ready);

/**
 * Allocates a container of `bytes` bytes on a path, and waits up to `timeout_ns` nanoseconds for free memory
 * (negative: for ever; 0: not at all). The contents are those of the last use of the memory, or zeros. A
 * container ends by bywash_ship() or bywash_free().
 *
 * BYWASH_ERROR_TOO_LARGE: `bytes` exceeds the arena. BYWASH_ERROR_TIMED_OUT: the arena has no free memory,
 * until the peer frees a container. BYWASH_ERROR_UNFIT: `bytes` is 0 on a sealed path.
 */
int bywash_alloc(struct bywash_path path,
                 size_t bytes,
                 int64_t timeout_ns,
                 struct bywash_container *container);

/**
 * Returns the address and the length of a container's bytes. The program may read and write the bytes until
 * the container is shipped, freed or resized; after a failed ship, call this function again. `length` may be
 * null.
 */
int bywash_container_map(struct bywash_container container, uint8_t **bytes, size_t *length);

/**
 * Returns the length of a container, in bytes: that many bytes are shipped.
 */
int bywash_container_length(struct bywash_container container, size_t *length);

/**
 * Returns the capacity of a container, in bytes.
 */
int bywash_container_capacity(struct bywash_container container, size_t *capacity);

/**
 * Returns descriptor, offset and length of a container's memory. A process that maps it can read the whole arena and
 * write none of it. BYWASH_ERROR_NOT_MAPPED: the container is so small that it is outside of shared memory, it is on a
 * sealed path and not shipped yet, or both ends may write to the arena.
 */
int bywash_container_memory(struct bywash_container container,
                            struct bywash_memory_range *range);

/**
 * Sets the length of a container, up to its capacity (else BYWASH_ERROR_TOO_LARGE). The address may change:
 * call bywash_container_map() again.
 */
int bywash_container_resize(struct bywash_container container, size_t length);

/**
 * Frees a container without shipping it, and zeroes the handle. A zero handle is ignored.
 */
int bywash_free(struct bywash_container *container);

/**
 * Ships a container, and waits up to `timeout_ns` nanoseconds for a free ring entry (negative: for ever; 0:
 * not at all). The container then belongs to the peer: the handle becomes zero, and the program must not
 * touch the bytes any more. On failure the program keeps the container, under a new handle that replaces the
 * old one; call bywash_container_map() again for the address.
 *
 * BYWASH_ERROR_UNFIT: the container was allocated on another path.
 */
int bywash_ship(struct bywash_path path, struct bywash_container *container, int64_t timeout_ns);

/**
 * Ships `count` containers as one message, all or none; see bywash_ship().
 */
int bywash_ship_several(struct bywash_path path,
                        struct bywash_container *containers,
                        size_t count,
                        int64_t timeout_ns);

/**
 * Ships `count` containers and received messages as one message, all or none; see bywash_ship(). For
 * instance, a program can put a header of its own in front of a received message.
 */
int bywash_ship_cargo(struct bywash_path path,
                      struct bywash_shipment *shipment,
                      size_t count,
                      int64_t timeout_ns);

/**
 * Ships a received message on, over any path, mapped or not. The message then belongs to the next peer: the
 * handle becomes zero, and mapped pieces must not be used any more. When the next peer frees the message,
 * its containers return to their owner. On failure the program keeps the message under a new handle, with
 * nothing mapped.
 */
int bywash_forward(struct bywash_path path, struct bywash_message *message, int64_t timeout_ns);

/**
 * Receives the next message, and waits up to `timeout_ns` nanoseconds for it (negative: for ever; 0: not at
 * all). bywash_message_free() returns the message to the peer, bywash_forward() ships it on.
 *
 * BYWASH_ERROR_TIMED_OUT: no message arrived. BYWASH_ERROR_CLOSED: no message will arrive any more.
 */
int bywash_receive(struct bywash_path path, int64_t timeout_ns, struct bywash_message *message);

/**
 * Returns the length of a message, in bytes: the sum of all pieces.
 */
int bywash_message_length(struct bywash_message message, size_t *length);

/**
 * Returns the credentials of the process that shipped a message to this one, as the kernel states them. That
 * may be another process than the one that filled the message.
 */
int bywash_message_origin(struct bywash_message message, struct bywash_credentials *origin);

/**
 * Returns descriptor, offset and length of the memory of piece `piece` of a message, for a process that maps it by
 * itself; see bywash_container_memory(). On a checked path the shipper may write there at any time.
 */
int bywash_message_memory(struct bywash_message message,
                          size_t piece,
                          struct bywash_memory_range *range);

/**
 * Returns the number of pieces of a message; pieces are numbered from 0. Most messages have one.
 */
int bywash_message_pieces(struct bywash_message message, size_t *pieces);

/**
 * Returns the length of a piece, in bytes.
 */
int bywash_piece_length(struct bywash_message message, size_t piece, size_t *length);

/**
 * Maps a piece without copying it, and returns the address and the length of its bytes. The program may read
 * the bytes until bywash_unmap(), bywash_message_free() or a ship of the message. Mapping a piece twice
 * returns the same address. `length` may be null.
 *
 * BYWASH_ERROR_NOT_MAPPED, and `bytes` becomes null: on a checked path, where the peer could change the
 * bytes (copy them out instead), and on a forward path. Pieces of up to 120 bytes are sent in the ring and
 * can be mapped on every path.
 */
int bywash_map(struct bywash_message message, size_t piece, const uint8_t **bytes, size_t *length);

/**
 * Like bywash_map(), but the program may change the bytes in place before it ships the message back or on.
 * Both ends must have chosen BYWASH_CLASS_TRUSTED_TO_WRITE (else BYWASH_ERROR_NOT_MAPPED), except for pieces
 * of up to 120 bytes, which are sent as copies.
 */
int bywash_map_to_write(struct bywash_message message, size_t piece, uint8_t **bytes, size_t *length);

/**
 * Ends the mapping of a piece: the program must not use the bytes any more. A piece that is not mapped is
 * ignored.
 */
int bywash_unmap(struct bywash_message message, size_t piece);

/**
 * Copies a message, piece after piece, as much as fits into `size` bytes, and returns the number of bytes in
 * `copied` (which may be null). The peer cannot change the copy after the program has checked it.
 */
int bywash_copy_to(struct bywash_message message, uint8_t *to, size_t size, size_t *copied);

/**
 * Like bywash_copy_to(), but for one piece.
 */
int bywash_piece_copy_to(struct bywash_message message,
                         size_t piece,
                         uint8_t *to,
                         size_t size,
                         size_t *copied);

/**
 * Splits a message: each piece becomes a message of its own in `pieces`, which the program frees, keeps or
 * ships on. `most` is the capacity of `pieces` (BYWASH_PIECES_MAX is always enough); `count` becomes the
 * number of pieces. The handle of the whole message becomes zero; on failure it remains valid.
 */
int bywash_message_split(struct bywash_message *message,
                         struct bywash_message *pieces,
                         size_t most,
                         size_t *count);

/**
 * Frees a message, which returns its containers to their owner, and zeroes the handle. A zero handle is
 * ignored. Free messages soon, since the peer cannot reuse containers that this end holds.
 */
int bywash_message_free(struct bywash_message *message);

/**
 * Creates a pool of at least `bytes` bytes, which are zeros. `trust` is one of enum bywash_trust. Free it with
 * bywash_pool_free().
 *
 * BYWASH_ERROR_OPTION: `bytes` is 0, or more than an arena can have.
 */
int bywash_pool_create(size_t bytes,
                       int trust,
                       struct bywash_pool *pool);

/**
 * Frees a pool and zeroes the handle; a zero handle is ignored. Its memory is freed with its last container, those that
 * are shipped included.
 */
int bywash_pool_free(struct bywash_pool *pool);

/**
 * Returns the descriptor of a pool's memory, which the other process maps, and its size in bytes. The descriptor remains
 * the library's: pass it on through a socket, or duplicate it. It is valid as long as the pool is. `bytes` may be null.
 */
int bywash_pool_memory(struct bywash_pool pool,
                       int *fd,
                       size_t *bytes);

/**
 * Allocates a container of `bytes` bytes from a pool. The contents are those of the last use of the memory, or zeros.
 * Free it with bywash_pool_container_free().
 *
 * BYWASH_ERROR_TOO_LARGE: the pool can never hold so many bytes in one container, or `bytes` is 0.
 * BYWASH_ERROR_NO_ROOM: the pool has no room now; the message tells who has it.
 */
int bywash_pool_alloc(struct bywash_pool pool,
                      size_t bytes,
                      struct bywash_pool_container *container);

/**
 * Returns the address and the length of a container's bytes, which the program may write until it ships or frees the
 * container. `length` may be null.
 *
 * BYWASH_ERROR_NOT_MAPPED: the container was shipped.
 */
int bywash_pool_container_map(struct bywash_pool_container container,
                              uint8_t **bytes,
                              size_t *length);

/**
 * Returns descriptor, offset and length of a container's memory, for the other process.
 */
int bywash_pool_container_memory(struct bywash_pool_container container, struct bywash_memory_range *range);

/**
 * Ships a container: it can be neither mapped nor allocated again until bywash_pool_container_returned(). Tell the other
 * process its offset.
 *
 * BYWASH_ERROR_NOT_MAPPED: it was shipped already.
 */
int bywash_pool_container_ship(struct bywash_pool_container container);

/**
 * Takes a shipped container back. You state that the other process has returned it; otherwise it sees what you write next.
 *
 * BYWASH_ERROR_NOT_MAPPED: it was not shipped.
 */
int bywash_pool_container_returned(struct bywash_pool_container container);

/**
 * Frees a container and zeroes the handle; a zero handle is ignored. The memory of a container that is shipped is not
 * used again as long as the pool exists, since the other process may still read it.
 */
int bywash_pool_container_free(struct bywash_pool_container *container);

/**
 * Creates a client's options with the defaults: a depth of 256, an arena of 16 MiB, a server that is not
 * trusted. Free them with bywash_channel_client_options_free(), at any time after the last channel was made
 * with them.
 */
int bywash_channel_client_options_new(struct bywash_channel_client_options *options);

/**
 * Frees options and zeroes the handle. A zero handle is ignored.
 */
int bywash_channel_client_options_free(struct bywash_channel_client_options *options);

/**
 * Sets the depth, the greatest number of requests in flight: a power of two up to 16384 (else making a
 * channel fails with BYWASH_ERROR_OPTION). Default 256.
 */
int bywash_channel_client_options_set_depth(struct bywash_channel_client_options options, uint32_t requests);

/**
 * Sets the size of the arena for buffers, in bytes. Rounded up to pages, from 2 MiB on to multiples of 2
 * MiB. With 0 requests have no buffers. Default 16 MiB.
 */
int bywash_channel_client_options_set_arena_bytes(struct bywash_channel_client_options options, size_t bytes);

/**
 * Sets the use of huge pages for the arena: BYWASH_HUGE_PAGES_COLLAPSE, or BYWASH_HUGE_PAGES_NO, the
 * default. With BYWASH_HUGE_PAGES_RESERVED making a channel fails with BYWASH_ERROR_OPTION, since a server
 * that may write to the arena could punch holes into reserved huge pages.
 */
int bywash_channel_client_options_set_huge_pages(struct bywash_channel_client_options options,
                                                 int huge_pages);

/**
 * Sets whether buffers can be used in place (bywash_buffer_map()); 0 is no, the default. With any other
 * value you promise that the server touches a buffer only while a request with the buffer is in flight. A
 * server that uses only this library keeps that promise; a server written or compromised by somebody else
 * may not. If the promise is broken, contents change while you read them.
 */
int bywash_channel_client_options_set_trusted(struct bywash_channel_client_options options, int trusted);

/**
 * Sets the method of waiting, one of enum bywash_wait.
 */
int bywash_channel_client_options_set_wait(struct bywash_channel_client_options options, int wait);

/**
 * Sets the timeout of the handshake, in nanoseconds. Not negative. Default 10 s.
 */
int bywash_channel_client_options_set_handshake_timeout(struct bywash_channel_client_options options,
                                                        int64_t limit_ns);

/**
 * Creates a server's options with the defaults: depths up to 4096 and arenas up to 64 MiB are allowed. Free
 * them with bywash_channel_server_options_free(), at any time after the last channel was made with them.
 */
int bywash_channel_server_options_new(struct bywash_channel_server_options *options);

/**
 * Frees options and zeroes the handle. A zero handle is ignored.
 */
int bywash_channel_server_options_free(struct bywash_channel_server_options *options);

/**
 * Sets the greatest depth that a client may choose: a power of two up to 16384 (else making a channel fails
 * with BYWASH_ERROR_OPTION). Default 4096. A greater depth fails with BYWASH_ERROR_MISFIT at both ends.
 */
int bywash_channel_server_options_set_depth_max(struct bywash_channel_server_options options,
                                                uint32_t requests);

/**
 * Sets the greatest size of a client's arena, in bytes. Default 64 MiB. The arena occupies address space of
 * the server; its memory is charged to the client. A larger arena fails with BYWASH_ERROR_MISFIT at both
 * ends.
 */
int bywash_channel_server_options_set_arena_bytes_max(struct bywash_channel_server_options options,
                                                      size_t bytes);

/**
 * Sets the method of waiting, one of enum bywash_wait.
 */
int bywash_channel_server_options_set_wait(struct bywash_channel_server_options options, int wait);

/**
 * Sets the timeout of the handshake, in nanoseconds. Not negative. Default 10 s.
 */
int bywash_channel_server_options_set_handshake_timeout(struct bywash_channel_server_options options,
                                                        int64_t limit_ns);

/**
 * Allocates a buffer of `bytes` bytes in a client's arena, which can be submitted repeatedly. The contents
 * are those of the last use of the memory, or zeros. The call never waits, and any thread may make it. Free
 * the buffer by bywash_buffer_free(), before or after the client is closed.
 *
 * BYWASH_ERROR_TOO_LARGE: `bytes` exceeds the arena. BYWASH_ERROR_NO_ROOM: other buffers occupy the arena.
 */
int bywash_buffer_alloc(struct bywash_channel_client client, size_t bytes, struct bywash_buffer *buffer);

/**
 * Frees a buffer and zeroes the handle. A zero handle is ignored.
 */
int bywash_buffer_free(struct bywash_buffer *buffer);

/**
 * Returns the length of a buffer, in bytes: the part that a request includes.
 */
int bywash_buffer_length(struct bywash_buffer buffer, size_t *length);

/**
 * Returns the capacity of a buffer, in bytes.
 */
int bywash_buffer_capacity(struct bywash_buffer buffer, size_t *capacity);

/**
 * Sets the length of a buffer, up to its capacity (else BYWASH_ERROR_TOO_LARGE).
 */
int bywash_buffer_resize(struct bywash_buffer buffer, size_t length);

/**
 * Copies up to `size` bytes at `from` into a buffer from offset `at` on, as many as its length has room for,
 * and returns the number in `copied` (which may be null).
 */
int bywash_buffer_write(struct bywash_buffer buffer,
                        size_t at,
                        const uint8_t *from,
                        size_t size,
                        size_t *copied);

/**
 * Copies the bytes of a buffer from offset `at` on to `to`, at most `size` bytes, and returns the number in
 * `copied` (which may be null). The server cannot change the copy after the program has checked it.
 */
int bywash_buffer_read(struct bywash_buffer buffer, size_t at, uint8_t *to, size_t size, size_t *copied);

/**
 * Returns the address and the length of a buffer's bytes. The program may read and write the bytes until the
 * buffer is submitted or freed. A completion returns the buffer at the same address. `length` may be null.
 *
 * BYWASH_ERROR_NOT_MAPPED, and `bytes` becomes null: the server is not trusted, and could change the bytes.
 * Copy them with bywash_buffer_read() and bywash_buffer_write().
 */
int bywash_buffer_map(struct bywash_buffer buffer, uint8_t **bytes, size_t *length);

/**
 * Connects to the server that listens at a name, and makes the client's end of a channel.
 */
int bywash_channel_client_connect(const char *name,
                                  struct bywash_channel_client_options options,
                                  struct bywash_channel_client *client);

/**
 * Makes the client's end of a channel over a connected descriptor, from bywash_socket_pair() or inherited.
 * Waits until the server does the same at the other end. The library takes the descriptor over and closes it
 * even if the call fails, except with BYWASH_ERROR_ARGUMENT and BYWASH_ERROR_HANDLE.
 */
int bywash_channel_client_over(int fd,
                               struct bywash_channel_client_options options,
                               struct bywash_channel_client *client);

/**
 * Closes this end and zeroes the handle. The server takes the requests that were submitted before, then
 * receives BYWASH_ERROR_CLOSED; its completions are discarded. A call that waits in another thread returns
 * BYWASH_ERROR_HANDLE within 100 ms. Callbacks stop as by bywash_channel_client_dispatch_stop(); if a
 * callback itself closes the client, the call does not wait, and no callback follows. Buffers remain valid,
 * but those in flight are freed. A zero handle is ignored.
 */
int bywash_channel_client_close(struct bywash_channel_client *client);

/**
 * Submits a request, and returns its tag in `tag` (which may be null): a number below the depth, unique
 * among requests in flight. The call never waits; threads that submit at the same time take turns. The
 * buffer then belongs to the server: its handle becomes zero, and the program must not touch the bytes until
 * the completion returns the buffer. On failure the program keeps the buffer, under a new handle that
 * replaces the old one, and the rest of the submission is unchanged.
 *
 * BYWASH_ERROR_NO_ROOM: as many requests are in flight as the channel is deep; reap first.
 * BYWASH_ERROR_UNFIT: the buffer belongs to another channel. The death of the server is reported to the
 * thread that reaps.
 */
int bywash_channel_client_submit(struct bywash_channel_client client,
                                 struct bywash_submission *submission,
                                 uint16_t *tag);

/**
 * Waits up to `timeout_ns` nanoseconds for the next completion of any request (negative: for ever; 0: not at
 * all). One thread at a time may reap; others may submit meanwhile.
 *
 * BYWASH_ERROR_TIMED_OUT: no completion arrived. BYWASH_ERROR_CLOSED, BYWASH_ERROR_PEER_DIED: all
 * completions that the server sent were reaped, and no more will arrive; a timeout of 0 does not detect the
 * death of the server. BYWASH_ERROR_BUSY: another thread waits, or a dispatcher reaps. BYWASH_ERROR_FULL:
 * `completion` is valid, but its buffer was freed.
 */
int bywash_channel_client_reap(struct bywash_channel_client client,
                               int64_t timeout_ns,
                               struct bywash_completion *completion);

/**
 * Prepares the descriptor for an event loop. Reap with a timeout of 0 until BYWASH_ERROR_TIMED_OUT, then
 * call this function. With `ready` 0 the descriptor becomes readable when the server completes a request or
 * ends. With `ready` 1 a completion is ready: reap it. The next call makes the descriptor unreadable again,
 * and reports the death of the server.
 */
int bywash_channel_client_arm(struct bywash_channel_client client, int *ready);

/**
 * Returns the channel's descriptor for an event loop; see bywash_channel_client_arm(). The descriptor
 * remains the library's: poll it, and do nothing else with it.
 */
int bywash_channel_client_fd(struct bywash_channel_client client, int *fd);

/**
 * Returns the number of requests in flight: submitted and not reaped. The number is approximate while other
 * threads submit and reap.
 */
int bywash_channel_client_in_flight(struct bywash_channel_client client, uint32_t *requests);

/**
 * Returns the depth: the greatest number of requests in flight.
 */
int bywash_channel_client_depth(struct bywash_channel_client client, uint32_t *requests);

/**
 * Returns the credentials of the server, as the kernel states them.
 */
int bywash_channel_client_peer(struct bywash_channel_client client, struct bywash_credentials *peer);

/**
 * Returns the counters of this end. `size` is sizeof(struct bywash_channel_stats) as the program was
 * compiled; the call writes that many bytes, and counters that the library does not know are 0.
 */
int bywash_channel_client_stats(struct bywash_channel_client client,
                                struct bywash_channel_stats *stats,
                                size_t size);

/**
 * Starts a thread that calls `callback` for each completion, and once with the error that ends the channel,
 * until bywash_channel_client_dispatch_stop() or bywash_channel_client_close(). No other thread can reap
 * meanwhile (BYWASH_ERROR_BUSY). `context` must remain valid until then.
 *
 * BYWASH_ERROR_IO: the thread could not be created.
 */
int bywash_channel_client_dispatch(struct bywash_channel_client client,
                                   bywash_callback callback,
                                   void *context);

/**
 * Waits until a running callback has returned (and up to 100 ms longer), and ends the thread that calls
 * back. Afterwards bywash_channel_client_reap() can be used again. Without a dispatcher the call does
 * nothing.
 */
int bywash_channel_client_dispatch_stop(struct bywash_channel_client client);

/**
 * Copies the bytes of a request's buffer from offset `at` on to `to`, at most `size` bytes, and returns the
 * number in `copied` (which may be null). The client can change its buffer at any time, but not the copy:
 * check the copy, then use the copy.
 */
int bywash_request_read(struct bywash_request request, size_t at, uint8_t *to, size_t size, size_t *copied);

/**
 * Copies up to `size` bytes at `from` into a request's buffer from offset `at` on, as many as fit, and
 * returns the number in `copied` (which may be null).
 */
int bywash_request_write(struct bywash_request request,
                         size_t at,
                         const uint8_t *from,
                         size_t size,
                         size_t *copied);

/**
 * Returns the address and the length of a request's buffer, for a system call or a device; null if the
 * request has none (`length` may be null). The buffer remains mapped until the request is completed. The
 * client can change the bytes at any time: do not check them in place and use them afterwards.
 */
int bywash_request_memory(struct bywash_request request, uint8_t **bytes, size_t *length);

/**
 * Completes a request: the client receives the completion, owns the buffer again, and may reuse the tag. A
 * status of 0 is success; the service defines other numbers, and the value. The call never waits; threads
 * that complete at the same time take turns. The handle becomes zero, and the request ends, with every
 * result except BYWASH_ERROR_HANDLE, BYWASH_ERROR_BUSY and BYWASH_ERROR_ARGUMENT.
 *
 * If the client has ended the completion is discarded, without an error. BYWASH_ERROR_CLOSED: the server was
 * closed before, and the call only frees the request.
 */
int bywash_request_complete(struct bywash_request *request, uint16_t status, uint64_t value);

/**
 * Waits for a client and makes a channel to it. The handshakes of several clients run side by side, so that
 * a silent client delays no other. A client with incompatible options fails this call only; the listener
 * remains usable.
 */
int bywash_channel_server_accept(struct bywash_listener listener,
                                 struct bywash_channel_server_options options,
                                 struct bywash_channel_server *server);

/**
 * Like bywash_channel_server_accept(), with a timeout in nanoseconds that includes the handshake; a negative
 * timeout waits for ever.
 */
int bywash_channel_server_accept_within(struct bywash_listener listener,
                                        struct bywash_channel_server_options options,
                                        int64_t timeout_ns,
                                        struct bywash_channel_server *server);

/**
 * Makes the server's end of a channel over a connected descriptor, from bywash_socket_pair() or
 * bywash_accept_fd(), or inherited. Waits until the client does the same at the other end. The library takes
 * the descriptor over and closes it even if the call fails, except with BYWASH_ERROR_ARGUMENT and
 * BYWASH_ERROR_HANDLE.
 */
int bywash_channel_server_over(int fd,
                               struct bywash_channel_server_options options,
                               struct bywash_channel_server *server);

/**
 * Closes this end and zeroes the handle. The client reaps earlier completions, then receives
 * BYWASH_ERROR_CLOSED. A call that waits in another thread returns BYWASH_ERROR_HANDLE within 100 ms.
 * Requests that were taken and not completed keep their memory until bywash_request_complete() frees them. A
 * zero handle is ignored.
 */
int bywash_channel_server_close(struct bywash_channel_server *server);

/**
 * Waits up to `timeout_ns` nanoseconds for the next request (negative: for ever; 0: not at all), and returns
 * its contents. End every request by bywash_request_complete(), in any thread: the client waits for that.
 * One thread at a time may take requests; others may complete requests meanwhile.
 *
 * BYWASH_ERROR_TIMED_OUT: no request arrived. BYWASH_ERROR_CLOSED, BYWASH_ERROR_PEER_DIED: all requests that
 * the client submitted were taken, and no more will arrive; a timeout of 0 does not detect the death of the
 * client. BYWASH_ERROR_BUSY: another thread waits. BYWASH_ERROR_FULL: the request is kept for the next call.
 */
int bywash_channel_server_next(struct bywash_channel_server server,
                               int64_t timeout_ns,
                               struct bywash_request *request,
                               struct bywash_request_contents *contents);

/**
 * Prepares the descriptor for an event loop. Take requests with a timeout of 0 until BYWASH_ERROR_TIMED_OUT,
 * then call this function. With `ready` 0 the descriptor becomes readable when the client submits a request
 * or ends. With `ready` 1 a request is ready: take it. The next call makes the descriptor unreadable again,
 * and reports the death of the client.
 */
int bywash_channel_server_arm(struct bywash_channel_server server, int *ready);

/**
 * Returns the channel's descriptor for an event loop; see bywash_channel_server_arm(). The descriptor
 * remains the library's: poll it, and do nothing else with it.
 */
int bywash_channel_server_fd(struct bywash_channel_server server, int *fd);

/**
 * Returns the credentials of the client, as the kernel states them.
 */
int bywash_channel_server_peer(struct bywash_channel_server server, struct bywash_credentials *peer);

/**
 * Returns the counters of this end. `size` is sizeof(struct bywash_channel_stats) as the program was
 * compiled; the call writes that many bytes, and counters that the library does not know are 0.
 */
int bywash_channel_server_stats(struct bywash_channel_server server,
                                struct bywash_channel_stats *stats,
                                size_t size);

/**
 * Creates options with the defaults: a timeout of 10 s for every response, a depth of 256 and an arena of 16
 * MiB (or as much as the server allows), no reconnecting. Free them with bywash_client_options_free(), at
 * any time after the last connection was made with them.
 */
int bywash_client_options_new(struct bywash_client_options *options);

/**
 * Frees options and zeroes the handle. A zero handle is ignored.
 */
int bywash_client_options_free(struct bywash_client_options *options);

/**
 * Sets the name of the program in the server's reports: 64 bytes at most (else connecting fails with
 * BYWASH_ERROR_OPTION). Default: the name of the program's file.
 */
int bywash_client_options_set_name(struct bywash_client_options options, const char *name);

/**
 * Sets the timeout for every response of the server, in nanoseconds. Default 10 s.
 */
int bywash_client_options_set_limit(struct bywash_client_options options, uint64_t limit_ns);

/**
 * Sets the depth, the greatest number of requests in flight: a power of two (else making a channel fails
 * with BYWASH_ERROR_OPTION).
 */
int bywash_client_options_set_depth(struct bywash_client_options options, uint32_t requests);

/**
 * Sets the size, in bytes, of the arena through which reads and writes of volumes that are not mapped are
 * copied.
 */
int bywash_client_options_set_arena_bytes(struct bywash_client_options options, size_t bytes);

/**
 * Sets the method of waiting for completions, one of enum bywash_wait.
 */
int bywash_client_options_set_wait(struct bywash_client_options options, int wait);

/**
 * Sets the choice between mapped memory and the channel, one of enum bywash_choice.
 */
int bywash_client_options_set_choice(struct bywash_client_options options, int choice);

/**
 * Sets how long, in nanoseconds, the library tries to reconnect after the server has ended. Requests without
 * a completion are then submitted again, except compare-and-write (BYWASH_ERROR_UNKNOWN). With 0, the
 * default, requests in flight and all later ones fail with BYWASH_ERROR_PEER_DIED.
 */
int bywash_client_options_set_reconnect(struct bywash_client_options options, uint64_t within_ns);

/**
 * Sets whether buffers of queues can be used in place (bywash_buffer_map()); 0 is no, the default. With any
 * other value you promise that the server touches a buffer only while a request with the buffer is in
 * flight. If the promise is broken, contents change while you read them.
 */
int bywash_client_options_set_trusted(struct bywash_client_options options, int trusted);

/**
 * Connects to the device server that listens at a name. Options of 0 stand for the defaults.
 */
int bywash_client_connect(const char *name,
                          struct bywash_client_options options,
                          struct bywash_client *client);

/**
 * Closes a connection and zeroes the handle. Volumes that were opened with the connection remain open. A
 * zero handle is ignored.
 */
int bywash_client_close(struct bywash_client *client);

/**
 * Returns the volumes that the user may see, as a JSON list. Free the text with bywash_text_free().
 */
int bywash_client_volumes(struct bywash_client client, struct bywash_text *text);

/**
 * Returns the status of the server, as JSON. Free the text with bywash_text_free().
 */
int bywash_client_status(struct bywash_client client, struct bywash_text *text);

/**
 * Opens a volume by its name, with rights of enum bywash_access.
 */
int bywash_volume_open(struct bywash_client client,
                       const char *name,
                       int access,
                       struct bywash_volume *volume);

/**
 * Opens a regular file or a block device by a descriptor of the program, with the rights of the descriptor's
 * access mode. The library takes the descriptor over and closes it even if the call fails, except with
 * BYWASH_ERROR_ARGUMENT and BYWASH_ERROR_HANDLE.
 */
int bywash_volume_open_descriptor(struct bywash_client client, int fd, struct bywash_volume *volume);

/**
 * Closes a volume and zeroes the handle. A zero handle is ignored.
 */
int bywash_volume_close(struct bywash_volume *volume);

/**
 * Returns the properties of a volume; `size` is sizeof *info.
 */
int bywash_volume_get_info(struct bywash_volume volume, struct bywash_volume_info *info, size_t size);

/**
 * Returns the reason why a volume is not mapped, or an empty text if the volume is mapped. Free the text
 * with bywash_text_free().
 */
int bywash_volume_why_not_mapped(struct bywash_volume volume, struct bywash_text *text);

/**
 * Reads `length` bytes from `offset` on into `to`. If the call fails the contents of `to` are undefined.
 */
int bywash_volume_read(struct bywash_volume volume, uint64_t offset, uint8_t *to, size_t length);

/**
 * Writes `length` bytes at `from` to the volume from `offset` on. The bytes are durable after the next
 * bywash_volume_flush(), or, if `durable` is not 0, when the call returns.
 */
int bywash_volume_write(struct bywash_volume volume,
                        uint64_t offset,
                        const uint8_t *from,
                        size_t length,
                        int durable);

/**
 * Flushes a volume: every write that was completed before the call is durable when the call returns, as far
 * as the device is durable at all.
 */
int bywash_volume_flush(struct bywash_volume volume);

/**
 * Tells the device that the contents of a range are no longer needed (TRIM). The bytes are undefined until
 * they are written again.
 */
int bywash_volume_discard(struct bywash_volume volume, uint64_t offset, uint64_t length);

/**
 * Writes zeros to a range; see bywash_volume_write() for `durable`.
 */
int bywash_volume_write_zeroes(struct bywash_volume volume, uint64_t offset, uint64_t length, int durable);

/**
 * Writes the `length` bytes at `written` if the range holds the bytes at `expected`, else fails with
 * BYWASH_ERROR_DIFFERS. The operation is atomic among all clients of the server. Most devices support a
 * length of one block.
 */
int bywash_volume_compare_and_write(struct bywash_volume volume,
                                    uint64_t offset,
                                    const uint8_t *expected,
                                    const uint8_t *written,
                                    size_t length);

/**
 * Reads ranges of several volumes of a connection by one request: 1 to BYWASH_VOLUME_PIECES_MAX pieces (else
 * BYWASH_ERROR_PIECES), into memory that does not overlap. If one piece is invalid nothing is read.
 */
int bywash_client_read_many(struct bywash_client client,
                            const struct bywash_read_piece *pieces,
                            size_t count);

/**
 * Writes ranges of several volumes by one request; see bywash_client_read_many(). If one piece is invalid
 * nothing is written. With `durable` other than 0 all bytes are durable when the call returns.
 */
int bywash_client_write_many(struct bywash_client client,
                             const struct bywash_write_piece *pieces,
                             size_t count,
                             int durable);

/**
 * Creates a queue over a new connection, with the options of an existing one.
 */
int bywash_queue_new(struct bywash_client client, struct bywash_queue *queue);

/**
 * Closes a queue and zeroes the handle. The queue's volumes are closed, requests in flight get no
 * completion, the memory of reads in flight is not touched any more, and buffers in flight are freed.
 * Callbacks stop as by bywash_queue_dispatch_stop(); if a callback itself closes the queue, the call does
 * not wait, and no callback follows. A zero handle is ignored. BYWASH_ERROR_BUSY: another thread is in a
 * call with the queue, or stops its callbacks.
 */
int bywash_queue_close(struct bywash_queue *queue);

/**
 * Opens a volume with rights of enum bywash_access, and returns the number by which requests of this queue
 * name it.
 */
int bywash_queue_open(struct bywash_queue queue, const char *name, int access, uint64_t *volume);

/**
 * Like bywash_queue_open(), but for a descriptor of the program; see bywash_volume_open_descriptor().
 */
int bywash_queue_open_descriptor(struct bywash_queue queue, int fd, uint64_t *volume);

/**
 * Closes a volume of a queue. BYWASH_ERROR_BUSY: requests of the volume are in flight, or were not reaped.
 */
int bywash_queue_close_volume(struct bywash_queue queue, uint64_t volume);

/**
 * Reaps up to `most` completions into `done` and returns their number in `count`. Waits for the first one up
 * to `timeout_ns` nanoseconds (0: not at all; negative: as long as the options of the connection say).
 *
 * BYWASH_ERROR_TIMED_OUT: no completion arrived. BYWASH_ERROR_IDLE: no request is in flight.
 * BYWASH_ERROR_BUSY: a dispatcher reaps. Every other error ended the queue, and is returned after all
 * completions were reaped.
 */
int bywash_queue_reap(struct bywash_queue queue,
                      int64_t timeout_ns,
                      struct bywash_done *done,
                      size_t most,
                      size_t *count);

/**
 * Waits until `least` completions can be reaped, or all requests in flight are completed if these are fewer,
 * but at most `timeout_ns` nanoseconds (negative: as long as the options of the connection say). A sleeping
 * thread is woken once for all of them. bywash_queue_reap() reports the end of a queue.
 *
 * BYWASH_ERROR_TIMED_OUT: fewer completions arrived, and these can be reaped. BYWASH_ERROR_BUSY: a
 * dispatcher reaps.
 */
int bywash_queue_wait(struct bywash_queue queue, size_t least, int64_t timeout_ns);

/**
 * Allocates a buffer of `bytes` bytes in the arena of a queue, for repeated use with
 * bywash_queue_read_buffer() and bywash_queue_write_buffer(). The contents are those of the last use of the
 * memory, or zeros. Access the buffer by bywash_buffer_write() and bywash_buffer_read(), and if the server
 * is trusted by bywash_buffer_map(). Free the buffer by bywash_buffer_free(), before or after the queue is
 * closed.
 *
 * BYWASH_ERROR_TOO_LARGE: `bytes` exceeds the arena. BYWASH_ERROR_NO_ROOM: other buffers occupy the arena.
 */
int bywash_queue_alloc(struct bywash_queue queue, size_t bytes, struct bywash_buffer *buffer);

/**
 * Returns the number of requests in flight: submitted and not reaped.
 */
int bywash_queue_in_flight(struct bywash_queue queue, size_t *count);

/**
 * Prepares an event loop. `is_done` 1: a completion can be reaped now. `is_done` 0: the descriptor `fd`
 * becomes readable when a request is completed or the server ends. The descriptor remains the library's and
 * changes when the queue reconnects: call this function each time.
 */
int bywash_queue_arm(struct bywash_queue queue, int *is_done, int *fd);

/**
 * Submits a read of `length` bytes from `offset` on. The memory at `to` belongs to the library until the
 * request is reaped or the queue is closed, and holds the bytes after the request was reaped.
 *
 * BYWASH_ERROR_NO_ROOM, for this and every other request: the queue depth is reached, or the arena has no
 * free memory. Reap first.
 */
int bywash_queue_read(struct bywash_queue queue,
                      uint64_t volume,
                      uint64_t offset,
                      uint8_t *to,
                      size_t length,
                      uint64_t user_data);

/**
 * Like bywash_queue_read(), but reads into a buffer of bywash_queue_alloc(), as many bytes as its length,
 * which avoids a copy unless the volume is mapped. The buffer then belongs to the queue: its handle becomes
 * zero, and the completion returns the buffer. On failure the program keeps the buffer, under a new handle
 * that replaces the old one.
 *
 * BYWASH_ERROR_UNFIT: the buffer belongs to a channel's client.
 */
int bywash_queue_read_buffer(struct bywash_queue queue,
                             uint64_t volume,
                             uint64_t offset,
                             struct bywash_buffer *buffer,
                             uint64_t user_data);

/**
 * Submits a write of the `length` bytes at `from`, which are copied during the call. With `durable` other
 * than 0 the bytes are durable when the request is completed.
 */
int bywash_queue_write(struct bywash_queue queue,
                       uint64_t volume,
                       uint64_t offset,
                       const uint8_t *from,
                       size_t length,
                       int durable,
                       uint64_t user_data);

/**
 * Like bywash_queue_write(), but writes the bytes of a buffer of bywash_queue_alloc(). The completion
 * returns the buffer as with bywash_queue_read_buffer().
 */
int bywash_queue_write_buffer(struct bywash_queue queue,
                              uint64_t volume,
                              uint64_t offset,
                              struct bywash_buffer *buffer,
                              int durable,
                              uint64_t user_data);

/**
 * Submits a flush: when the request is completed, every write that was reaped before is durable; see
 * bywash_volume_flush().
 */
int bywash_queue_flush(struct bywash_queue queue, uint64_t volume, uint64_t user_data);

/**
 * Submits a discard; see bywash_volume_discard().
 */
int bywash_queue_discard(struct bywash_queue queue,
                         uint64_t volume,
                         uint64_t offset,
                         uint64_t length,
                         uint64_t user_data);

/**
 * Submits a write of zeros; see bywash_volume_write_zeroes().
 */
int bywash_queue_write_zeroes(struct bywash_queue queue,
                              uint64_t volume,
                              uint64_t offset,
                              uint64_t length,
                              int durable,
                              uint64_t user_data);

/**
 * Submits a compare-and-write; see bywash_volume_compare_and_write(). Both byte strings are copied during
 * the call.
 */
int bywash_queue_compare_and_write(struct bywash_queue queue,
                                   uint64_t volume,
                                   uint64_t offset,
                                   const uint8_t *expected,
                                   const uint8_t *written,
                                   size_t length,
                                   uint64_t user_data);

/**
 * Submits a read of ranges of several volumes by one request: 1 to BYWASH_VOLUME_PIECES_MAX ranges (else
 * BYWASH_ERROR_PIECES). Their bytes are stored at `to`, one range after the other; see bywash_queue_read()
 * for the memory.
 */
int bywash_queue_read_many(struct bywash_queue queue,
                           const struct bywash_range *ranges,
                           size_t count,
                           uint8_t *to,
                           uint64_t user_data);

/**
 * Submits a write to ranges of several volumes by one request; see bywash_queue_read_many(). The bytes at
 * `from`, one range after the other, are copied during the call. See bywash_queue_write() for `durable`.
 */
int bywash_queue_write_many(struct bywash_queue queue,
                            const struct bywash_range *ranges,
                            size_t count,
                            const uint8_t *from,
                            int durable,
                            uint64_t user_data);

/**
 * Starts a thread that calls `callback` for each completed request, and once with the error that ends the queue, until
 * bywash_queue_dispatch_stop() or bywash_queue_close(). Any thread may submit meanwhile, the callback included, but no
 * other thread can reap (BYWASH_ERROR_BUSY). `context` must remain valid until then.
 *
 * BYWASH_ERROR_IO: the thread could not be created, and the queue has ended.
 */
int bywash_queue_dispatch(struct bywash_queue queue,
                          bywash_queue_callback callback,
                          void *context);

/**
 * Waits until a running callback has returned, and ends the thread that calls back. Afterwards bywash_queue_reap() can be
 * used again. Without a dispatcher the call does nothing.
 */
int bywash_queue_dispatch_stop(struct bywash_queue queue);

/**
 * Creates a volume of at least `bytes` bytes on a device, with an owner, a group and a mode (the read and write bits of
 * chmod(1)). Only the server's own user and root may administer volumes (else BYWASH_ERROR_DENIED).
 */
int bywash_client_create(struct bywash_client client,
                         const char *name,
                         const char *device,
                         uint64_t bytes,
                         uint32_t owner,
                         uint32_t group,
                         uint16_t mode);

/**
 * Creates a thin volume, as bywash_client_create() creates others: its blocks are allocated when they are first written,
 * and until then read as zeros. A write for which the device has no room fails with BYWASH_ERROR_DEVICE.
 */
int bywash_client_create_thin(struct bywash_client client,
                              const char *name,
                              const char *device,
                              uint64_t bytes,
                              uint32_t owner,
                              uint32_t group,
                              uint16_t mode);

/**
 * Changes the size of a volume. Grants to a volume that becomes smaller are revoked.
 */
int bywash_client_resize(struct bywash_client client, const char *name, uint64_t bytes);

/**
 * Renames a volume.
 */
int bywash_client_rename(struct bywash_client client, const char *name, const char *to);

/**
 * Takes a snapshot of a thin volume: a volume `snapshot` that nobody can write, with the contents of one instant. Every write
 * that completed before the call is in it, and all of it is durable when the call returns. It takes space only where the
 * volume is written afterwards.
 */
int bywash_client_snapshot(struct bywash_client client,
                           const char *name,
                           const char *snapshot);

/**
 * Creates a thin volume `name` with the contents, the owner, the group and the mode of a snapshot.
 */
int bywash_client_clone_snapshot(struct bywash_client client, const char *snapshot, const char *name);

/**
 * Gives a thin volume the contents and the size that one of its snapshots has, and revokes all grants to it. Refused while a
 * client has it open for writing.
 */
int bywash_client_rollback(struct bywash_client client,
                           const char *name,
                           const char *snapshot);

/**
 * Changes owner, group, mode and write protection (`read_only`, 0 or 1) of a volume, and revokes all grants to it. A
 * negative argument leaves its property unchanged.
 */
int bywash_client_permit(struct bywash_client client,
                         const char *name,
                         int64_t owner,
                         int64_t group,
                         int64_t mode,
                         int read_only);

/**
 * Removes a volume: all grants to it are revoked, and its contents are cleared, except what snapshots or clones have, too.
 */
int bywash_client_remove(struct bywash_client client,
                         const char *name);

/**
 * Revokes all grants to a volume, and waits until no request by them is in flight.
 */
int bywash_client_revoke(struct bywash_client client, const char *name);

/**
 * Creates a flow from `source` to `sink`, two endpoints in the syntax of the command `bywash flow`:
 * "file:/a/b,offset=1M", a path alone, "tcp:example.org:9000", "unix-listen:/run/x", "-". Nothing is opened yet. Free the
 * flow by bywash_flow_free(), at any time after it was last started.
 *
 * BYWASH_ERROR_OPTION: one of the two is not an endpoint; the message lists all kinds.
 */
int bywash_flow_new(const char *source,
                    const char *sink,
                    struct bywash_flow *flow);

/**
 * Frees a flow and zeroes the handle. A zero handle is ignored.
 */
int bywash_flow_free(struct bywash_flow *flow);

/**
 * Appends a stage: "hash:sha256", "tee:ENDPOINT", "limit:SIZE", "rate:SIZE" (a second), "compress:zstd", "decompress:",
 * "exec:COMMAND".
 *
 * BYWASH_ERROR_OPTION: the text is not a stage.
 */
int bywash_flow_stage(struct bywash_flow flow,
                      const char *stage);

/**
 * Forces the mover of a flow: "splice", "copy-range", "buffer" and so on, as named in its plan.
 *
 * BYWASH_ERROR_OPTION: no mover has this name. A mover that cannot move this flow fails with BYWASH_ERROR_UNFIT when the
 * flow is planned or started.
 */
int bywash_flow_via(struct bywash_flow flow,
                    const char *mover);

/**
 * Sets whether sockets may send pages by reference: the contents at the time of sending, not at the time of reading. 0 is
 * no, the default.
 */
int bywash_flow_by_reference(struct bywash_flow flow,
                             int by_reference);

/**
 * Sets the block size, from 512 bytes to 4 MiB (else BYWASH_ERROR_OPTION when the flow is planned or started). Default: the
 * planner's choice.
 */
int bywash_flow_block(struct bywash_flow flow,
                      size_t bytes);

/**
 * Sets whether the flow ends with an fsync of the sink; 0 is no, the default.
 */
int bywash_flow_sync(struct bywash_flow flow, int sync);

/**
 * Sets whether a flow between two sockets moves data from the source to the sink only, instead of in both directions; 0 is
 * no, the default.
 */
int bywash_flow_one_way(struct bywash_flow flow,
                        int one_way);

/**
 * Sets whether the flow first searches for the highest rate without loss and then sends datagrams at that rate; 0 is no, the
 * default. The sink must be sequenced datagrams, and a receiver must be running.
 */
int bywash_flow_finds_rate(struct bywash_flow flow,
                           int finds_rate);

/**
 * Returns the plan of a flow as JSON: a list with a plan for each part, the same that `bywash flow --explain --json` prints.
 * Nothing is created, connected or moved. Free the text with bywash_text_free().
 *
 * BYWASH_ERROR_OPTION, BYWASH_ERROR_UNFIT, BYWASH_ERROR_IO: an option is invalid, the endpoints do not fit together, or an
 * endpoint cannot be opened.
 */
int bywash_flow_plan(struct bywash_flow flow,
                     struct bywash_text *plan);

/**
 * Like bywash_flow_plan(), but as text for people: the chosen mover, the alternatives, and the reasons.
 */
int bywash_flow_explain(struct bywash_flow flow, struct bywash_text *text);

/**
 * Starts a flow in a thread of its own. bywash_running_wait() returns later errors. Free the handle by
 * bywash_running_free().
 *
 * BYWASH_ERROR_OPTION, BYWASH_ERROR_UNFIT, BYWASH_ERROR_IO: an option is invalid, the endpoints do not fit together, or an
 * endpoint cannot be opened.
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
 * Tells what there is to hear of a flow before its end, each notice on a line of its own, and each told
 * once: the fingerprint of a listener's certificate, say. The text is empty where there is nothing. Free it.
 */
int bywash_running_notices(struct bywash_running running, struct bywash_text *notices);

/**
 * Ends a flow: it stops after the piece that it is moving, wherever it waits; bywash_running_wait() answers
 * BYWASH_ERROR_CANCELLED then. Where it has ended already this does nothing.
 */
int bywash_running_cancel(struct bywash_running running);

/**
 * Tells a descriptor that is readable from the flow's end on, for an event loop. It stays the library's:
 * poll it, and do nothing else with it.
 */
int bywash_running_fd(struct bywash_running running, int *fd);

/**
 * Waits until a flow has ended, for `timeout_ns` nanoseconds (negative: for ever; 0: not at all). When it
 * has, this answers whether it came to its end, and else why not; and in either case `report` gets how far
 * it came, if it is not null. `size` is sizeof(struct bywash_report) as the program knows it: it gets so
 * many bytes, and members that are newer than the library are 0. To ask again answers the same.
 *
 * BYWASH_ERROR_TIMED_OUT: it goes on. BYWASH_ERROR_CANCELLED, BYWASH_ERROR_DATA, BYWASH_ERROR_LOST,
 * BYWASH_ERROR_PROGRAM, BYWASH_ERROR_IO: it did not come to its end.
 */
int bywash_running_wait(struct bywash_running running,
                        int64_t timeout_ns,
                        struct bywash_report *report,
                        size_t size);

/**
 * Tells all that is known of a flow that has ended, as JSON: its pieces and how each was moved, hashes, what
 * is kept of a file that is not whole, and as `error` why it did not come to its end, or null. The same as
 * `bywash flow --json` prints. Free the text.
 *
 * BYWASH_ERROR_TIMED_OUT: it has not ended.
 */
int bywash_running_report(struct bywash_running running, struct bywash_text *report);

/**
 * Lets a started flow go and zeroes the handle. The flow goes on to its end, unless the program ends before;
 * to end it, bywash_running_cancel() and bywash_running_wait() first. Zero is left alone.
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

/**
 * Creates options of a surface of this size, in pixels, with the defaults: three frames, a timeout of 5 s, and the
 * display that the environment names. Free them with bywash_surface_options_free(), at any time after the last surface was
 * opened with them.
 */
int bywash_surface_options_new(uint32_t width,
                               uint32_t height,
                               struct bywash_surface_options *options);

/**
 * Frees options and zeroes the handle. A zero handle is ignored.
 */
int bywash_surface_options_free(struct bywash_surface_options *options);

/**
 * Sets the display: its kind, one of enum bywash_display, and its name: for X11 as in DISPLAY (":0"), for Wayland its
 * socket, for a screen without a server the path of the card. A null name stands for the one that the environment names,
 * and for the first card that has a screen.
 */
int bywash_surface_options_set_display(struct bywash_surface_options options,
                                       int kind,
                                       const char *name);

/**
 * Sets the title of the window. Default "bywash".
 */
int bywash_surface_options_set_title(struct bywash_surface_options options, const char *title);

/**
 * Sets the number of frames, from 2 to 16 (else opening the surface fails with BYWASH_ERROR_OPTION): those that the
 * program draws into, and those that the display has. Default 3.
 */
int bywash_surface_options_set_frames(struct bywash_surface_options options,
                                      size_t frames);

/**
 * Sets the greatest time that the display may take to answer or to return a frame, in nanoseconds. Not negative. Default
 * 5 s.
 */
int bywash_surface_options_set_timeout(struct bywash_surface_options options,
                                       int64_t limit_ns);

/**
 * Sets the size of the screen's mode, in pixels, for BYWASH_DISPLAY_KMS alone. Default the mode that the screen prefers.
 */
int bywash_surface_options_set_mode(struct bywash_surface_options options,
                                    uint32_t width,
                                    uint32_t height);

/**
 * Opens a window, which the user cannot resize, or takes a screen. Close it with bywash_surface_close().
 *
 * BYWASH_ERROR_OPTION: an option has an invalid value, or no display is named. BYWASH_ERROR_IO: the display cannot be
 * reached. BYWASH_ERROR_UNFIT: the display lacks something; the message says what. BYWASH_ERROR_TIMED_OUT: it does not
 * answer within the timeout.
 */
int bywash_surface_open(struct bywash_surface_options options,
                        struct bywash_surface *surface);

/**
 * Closes a surface and zeroes the handle. A zero handle is ignored. Frames that the program still has can be drawn into
 * and freed, but not presented.
 */
int bywash_surface_close(struct bywash_surface *surface);

/**
 * Returns a frame to draw into, whose contents are those of an older frame. Waits until the display asks for one and a
 * frame is free, up to `timeout_ns` nanoseconds (negative: as long as the timeout of the surface allows; 0: not at all).
 * A frame ends by bywash_surface_present() or bywash_frame_free().
 *
 * BYWASH_ERROR_TIMED_OUT: there is none yet; or the display has returned none within the timeout of the surface, which the
 * message says. BYWASH_ERROR_CLOSED: the user closed the window. BYWASH_ERROR_PEER_DIED: the display server died, or the
 * screen was unplugged. BYWASH_ERROR_REFUSED: the display refused a request. BYWASH_ERROR_NO_ROOM: this program holds all
 * frames that the display does not hold.
 */
int bywash_surface_frame(struct bywash_surface surface,
                         int64_t timeout_ns,
                         struct bywash_frame *frame);

/**
 * Returns the pixels of a frame, which the program may write until it presents or frees the frame. A display server may
 * write them as well, so do not rely on what they hold.
 */
int bywash_frame_map(struct bywash_frame frame,
                     struct bywash_pixels *pixels);

/**
 * Returns descriptor, offset and length of a frame's memory, for a process that maps it by itself.
 */
int bywash_frame_memory(struct bywash_frame frame, struct bywash_memory_range *range);

/**
 * Gives a frame back without showing it, and zeroes the handle. A zero handle is ignored.
 */
int bywash_frame_free(struct bywash_frame *frame);

/**
 * Hands a frame to the display without a copy, and zeroes the handle, also if this fails. `damage` is `count` rectangles
 * in which the frame differs from the one before; with 0 rectangles, all of it does, and `damage` may be null. The display
 * shows the frame as long as no other one is presented.
 *
 * BYWASH_ERROR_UNFIT: the frame belongs to another surface; it is given back to that one. Other errors are those of
 * bywash_surface_frame().
 */
int bywash_surface_present(struct bywash_surface surface,
                           struct bywash_frame *frame,
                           const struct bywash_rectangle *damage,
                           size_t count);

/**
 * Waits until the display has asked for another frame after the last one, so that the last one has been shown. A window
 * that nobody sees counts as shown. Errors are those of bywash_surface_frame().
 */
int bywash_surface_finish(struct bywash_surface surface);

/**
 * Handles what the display has sent, without waiting: for a program that draws nothing for a while. Errors are those of
 * bywash_surface_frame().
 */
int bywash_surface_dispatch(struct bywash_surface surface);

/**
 * Returns a descriptor for poll(2), which becomes readable (POLLIN) when the display has sent something. Then, or when
 * 100 ms have passed, call bywash_surface_frame() with a timeout of 0. It remains the library's, and is valid as long as
 * the surface is.
 */
int bywash_surface_fd(struct bywash_surface surface,
                      int *fd);

/**
 * Returns the counts of a surface so far. `size` is sizeof(struct bywash_surface_stats).
 */
int bywash_surface_get_stats(struct bywash_surface surface, struct bywash_surface_stats *stats, size_t size);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* BYWASH_H */
