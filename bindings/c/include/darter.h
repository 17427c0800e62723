// darter: an ordered key-value map that several processes write at the same time.
//
// Link with -ldarter, or with libdarter.a -lpthread -ldl -lm. A program in ten lines:
//
//   darter_store *store;
//   darter_value value;
//   if (darter_open("file:/dev/shm/fruit.pool?size=64M", NULL, &store) != DARTER_OK) {
//       fprintf(stderr, "%s\n", darter_message());
//       return 1;
//   }
//   darter_put(store, "pear", 4, "green", 5);
//   if (darter_get(store, "pear", 4, &value) == DARTER_OK)
//       printf("%.*s\n", (int)value.length, (const char *)value.data);
//   darter_value_free(&value);
//   darter_close(store);
//
// Results. Functions return a darter_status: zero or positive is an outcome, negative an error,
// which darter_message describes. Newer versions may add codes.
//
// Bytes. A key or value is a pointer and a length: any bytes, not ended by NUL. The library reads
// them only during the call. NULL with length 0 is the empty key or value; NULL with another
// length is DARTER_ERROR_ARGUMENT. Otherwise the pointer must be valid for that length.
//
// Handles. A NULL handle or output is DARTER_ERROR_ARGUMENT. A handle must not be used after it
// was closed, freed or ended: that is undefined, as with free(). An output handle is NULL and an
// output value is empty if the call does not return DARTER_OK, so that both can always be freed.
//
// Threads. A store can be used by all threads at once, a range by one thread at a time, and a
// transaction only by the thread that began it. No other call may be at work on a handle when it
// is closed, freed or ended.
//
// fork. In the child, handles of the parent fail with DARTER_ERROR_FORKED. They may be closed
// there, which does not affect the parent, and the child can open the pool again.
//
// Signals and panics. The library installs no signal handler at opening. No panic crosses this
// interface: a defect of the library is DARTER_ERROR_PANIC.


#ifndef DARTER_H
#define DARTER_H

#include <stddef.h>
#include <stdint.h>

// Creates the pool if it does not exist, also on memory nodes. Without this flag a pool is created
// if its name is `mem:`, or has `?size=` and the file is absent or empty.
#define DARTER_CREATE 1

// Fails if the pool does not exist.
#define DARTER_EXISTING 2

// Creates the pool, and fails if it exists already.
#define DARTER_CREATE_NEW 4

// Opens a snapshot of a pool file that no process has open, without writing to it.
#define DARTER_READ_ONLY 8

// Fails unless all acknowledged writes survive a power failure.
#define DARTER_DURABLE 16

// Accepts a copy of a pool file that was open when it was copied.
#define DARTER_ACCEPT_COPY 32

// Keeps the store out of its pool after the pool has ended this process's membership.
#define DARTER_NO_REJOIN 64

// The result of a call.
typedef enum darter_status {
  // The call has done its work.
  DARTER_OK = 0,
  // The key is absent, or the range has no more pairs.
  DARTER_NOT_FOUND = 1,
  // The condition of the write does not hold; nothing has changed.
  DARTER_REFUSED = 2,
  // An argument is invalid: NULL, a length without bytes, an unknown flag, a transaction of
  // another thread.
  DARTER_ERROR_ARGUMENT = -1,
  // The pool cannot be opened as requested: its name is malformed, it does not exist or exists
  // already, or the file is not a pool.
  DARTER_ERROR_USAGE = -2,
  // The key or the value can never be stored in this pool.
  DARTER_ERROR_TOO_LONG = -3,
  // The pool is full. Everything stored is intact, and keys can be removed.
  DARTER_ERROR_FULL = -4,
  // The pool is full until a stopped process, which the message names, continues or ends.
  DARTER_ERROR_HELD_BACK = -5,
  // The store was opened with DARTER_READ_ONLY, or its token is a read-only one.
  DARTER_ERROR_READ_ONLY = -6,
  // Another client changed a key of the transaction. Nothing has changed; run it again.
  DARTER_ERROR_CONFLICT = -7,
  // The transaction has too many keys or bytes; split it.
  DARTER_ERROR_TRANSACTION_SIZE = -8,
  // A memory node cannot be reached; try again later.
  DARTER_ERROR_DISCONNECTED = -9,
  // The pool has ended this process's membership. The store joins it again by itself.
  DARTER_ERROR_SHUT_OUT = -10,
  // The process has forked since the pool was opened, and this is the child; open it again.
  DARTER_ERROR_FORKED = -11,
  // The pool has the format or the index of another version of darter.
  DARTER_ERROR_VERSION = -12,
  // The pool is damaged; restore it from a copy.
  DARTER_ERROR_DAMAGED = -13,
  // Any other error, most often of the operating system.
  DARTER_ERROR_OTHER = -14,
  // A defect of the library. The operation may have taken effect or not.
  DARTER_ERROR_PANIC = -15,
  // A backup cannot begin at this moment, or the pool has become too full for it; try again later.
  DARTER_ERROR_SNAPSHOT = -16,
} darter_status;

// An iteration over the pairs of a range.
typedef struct darter_range darter_range;

// An open pool with its index.
typedef struct darter_store darter_store;

// A transaction that has begun and not ended.
typedef struct darter_transaction darter_transaction;

// A value that the library has allocated. `darter_value_free` frees it.
typedef struct darter_value {
  // The bytes; NULL if the value is absent. A value of length 0 is not NULL.
  uint8_t *data;
  // Their number.
  size_t length;
} darter_value;

// Options of `darter_open`. Set all bytes to 0 and `size` to `sizeof(darter_options)`; a field
// that is 0 or NULL has its default.
typedef struct darter_options {
  // `sizeof(darter_options)`.
  size_t size;
  // DARTER_CREATE and others, combined by `|`.
  uint32_t flags;
  // Milliseconds of silence after which other processes check whether this process is dead.
  // Default: 5000.
  uint32_t lease_ms;
  // Bytes of this process's memory that the index may use as its cache. Default: 1 MiB.
  uint64_t cache_bytes;
  // Bytes of a new pool's blocks, a power of two from 256 KiB to 64 MiB; a value must fit in a
  // block. Default: a 64th of the smallest memory node, from 2 to 16 MiB.
  uint64_t block_bytes;
  // The only index to accept, and that of a new pool: "quiver" or "dart".
  const char *index;
  // The token for memory nodes, `token_length` bytes.
  const void *token;
  // Number of bytes of the token.
  size_t token_length;
  // File of the certificates that sign those of memory nodes; switches TLS on.
  const char *tls_ca;
  // File of the certificate that this process presents to memory nodes; needs `tls_key`.
  const char *tls_certificate;
  // File of the private key of `tls_certificate`.
  const char *tls_key;
} darter_options;

// The bytes of an array's element: a key or value of the caller.
typedef struct darter_bytes {
  // The bytes; NULL only if `length` is 0.
  const void *data;
  // Their number.
  size_t length;
} darter_bytes;

// A key with its value, in an array of the caller.
typedef struct darter_pair {
  // The key.
  struct darter_bytes key;
  // The value.
  struct darter_bytes value;
} darter_pair;

// A function that reads and changes keys in a transaction of `darter_transact`.
typedef enum darter_status (*darter_transaction_body)(struct darter_transaction *transaction,
                                                      void *context);

// What a backup holds.
typedef struct darter_backup_report {
  // Number of pairs.
  uint64_t pairs;
  // Bytes of all keys and values.
  uint64_t bytes;
  // The moment as of which it shows the pool, in milliseconds since 1970.
  uint64_t taken_at_ms;
  // The id of the pool.
  uint64_t pool_id;
} darter_backup_report;

// The figures of a check.
typedef struct darter_check_report {
  // Number of keys.
  uint64_t keys;
  // Number of violated invariants.
  uint64_t violations;
  // Bytes that no client can reach or will free; `darter check --repair` frees them.
  uint64_t leaked_bytes;
  // Bytes of reachable objects in blocks of other live processes, whose free space is unknown.
  uint64_t unverified_bytes;
} darter_check_report;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the version of the library, for example "0.1.0". The string is static.
const char *darter_version(void);

// Frees the bytes of a value and sets it to NULL and 0. Does nothing if `value` is NULL or holds
// NULL. `value` must have been written by this library and not been changed since.
void darter_value_free(struct darter_value *value);

// Returns the message of the last error of this thread: what was wrong, and what to do. The string
// is valid until this thread's next call of the library that returns an error; it is empty before
// the first.
const char *darter_message(void);

// Returns 1 if the operation of this thread's last error has not taken effect and can be repeated
// safely, otherwise 0: then an operation that changes data may have taken effect or not.
int32_t darter_is_unsent(void);

// Opens the pool that `url` names, a string that NUL ends: "mem:64M", "file:PATH?size=64M" or
// "tcp://HOST:PORT,HOST:PORT". Sets `*store`, which `darter_close` closes. `options` can be NULL.
enum darter_status darter_open(const char *url,
                               const struct darter_options *options,
                               struct darter_store **store);

// Closes a store; does nothing if it is NULL. The pool is left when the ranges and transactions of
// the store have ended too. This can take a second if other processes hold back freed memory.
void darter_close(struct darter_store *store);

// Reads the value of a key into `*value`, which `darter_value_free` frees. Returns
// DARTER_NOT_FOUND if the key is absent.
enum darter_status darter_get(const struct darter_store *store,
                              const void *key,
                              size_t key_length,
                              struct darter_value *value);

// Stores a value under a key, whether or not the key is present.
enum darter_status darter_put(const struct darter_store *store,
                              const void *key,
                              size_t key_length,
                              const void *value,
                              size_t value_length);

// Stores a value under a key if the key is absent. Returns DARTER_REFUSED if it is present.
enum darter_status darter_try_insert(const struct darter_store *store,
                                     const void *key,
                                     size_t key_length,
                                     const void *value,
                                     size_t value_length);

// Replaces the value of a key if it equals `expected`. Returns DARTER_REFUSED if it does not, or
// the key is absent.
enum darter_status darter_compare_exchange(const struct darter_store *store,
                                           const void *key,
                                           size_t key_length,
                                           const void *expected,
                                           size_t expected_length,
                                           const void *value,
                                           size_t value_length);

// Removes a key. Returns DARTER_NOT_FOUND if it is absent. `value`, which can be NULL, receives
// the value that was removed; `darter_value_free` frees it.
enum darter_status darter_remove(const struct darter_store *store,
                                 const void *key,
                                 size_t key_length,
                                 struct darter_value *value);

// Removes a key if its value equals `expected`. Returns DARTER_REFUSED if it does not, or the key
// is absent.
enum darter_status darter_compare_remove(const struct darter_store *store,
                                         const void *key,
                                         size_t key_length,
                                         const void *expected,
                                         size_t expected_length);

// Makes everything stored so far survive a power failure, if the medium can.
enum darter_status darter_persist(const struct darter_store *store);

// Reads the values of `count` keys into `values`, which has room for as many. The value of an
// absent key is NULL. `darter_value_free` frees each of the others. If the call fails, all are
// NULL.
enum darter_status darter_get_many(const struct darter_store *store,
                                   const struct darter_bytes *keys,
                                   size_t count,
                                   struct darter_value *values);

// Stores `count` pairs. Each put is atomic by itself, all of them together are not; a transaction
// is. Of pairs with the same key the last one takes effect last. If the call fails, each pair is
// stored or not.
enum darter_status darter_put_many(const struct darter_store *store,
                                   const struct darter_pair *pairs,
                                   size_t count);

// Begins an iteration over the keys from `from`, included, to `to`, excluded. If `from` is NULL,
// it begins with the smallest key; if `to` is NULL, it ends with the largest. Sets `*range`, which
// `darter_range_free` frees. Keys can be put and removed during the iteration: it returns every
// key that is present from its beginning to its end, and none that is absent for that time.
enum darter_status darter_range_open(const struct darter_store *store,
                                     const void *from,
                                     size_t from_length,
                                     const void *to,
                                     size_t to_length,
                                     struct darter_range **range);

// Begins an iteration over the keys that begin with `prefix`, as `darter_range_open` does.
enum darter_status darter_prefix_open(const struct darter_store *store,
                                      const void *prefix,
                                      size_t prefix_length,
                                      struct darter_range **range);

// Moves to the next pair, in ascending order, and sets `*key` and `*value` to its bytes. They are
// valid until the next call with this range. Returns DARTER_NOT_FOUND after the last pair; both
// are then NULL, as after an error.
enum darter_status darter_range_next(struct darter_range *range,
                                     struct darter_bytes *key,
                                     struct darter_bytes *value);

// Moves to the next pair from the end of the range, in descending order, as `darter_range_next`
// does. Both directions together return each pair once.
enum darter_status darter_range_next_back(struct darter_range *range,
                                          struct darter_bytes *key,
                                          struct darter_bytes *value);

// Ends an iteration; does nothing if it is NULL.
void darter_range_free(struct darter_range *range);

// Begins a transaction and sets `*transaction`. `darter_commit` or `darter_rollback` ends it, in
// the same thread. Pools with the index DART have no transactions: DARTER_ERROR_OTHER.
enum darter_status darter_begin(const struct darter_store *store,
                                struct darter_transaction **transaction);

// Reads the value of a key in a transaction, with the transaction's own changes, into `*value`,
// which `darter_value_free` frees. Returns DARTER_NOT_FOUND if the key is absent.
enum darter_status darter_transaction_get(struct darter_transaction *transaction,
                                          const void *key,
                                          size_t key_length,
                                          struct darter_value *value);

// Stores a value under a key when the transaction commits.
enum darter_status darter_transaction_put(struct darter_transaction *transaction,
                                          const void *key,
                                          size_t key_length,
                                          const void *value,
                                          size_t value_length);

// Removes a key when the transaction commits. Returns DARTER_OK also if the key is absent.
enum darter_status darter_transaction_remove(struct darter_transaction *transaction,
                                             const void *key,
                                             size_t key_length);

// Commits a transaction: all of its changes take effect at one moment, or none does. Ends it in
// either case, except for DARTER_ERROR_ARGUMENT. After DARTER_ERROR_CONFLICT, begin a new one,
// after a short random pause if conflicts repeat.
enum darter_status darter_commit(struct darter_transaction *transaction);

// Ends a transaction without its changes. Returns DARTER_OK for NULL too.
enum darter_status darter_rollback(struct darter_transaction *transaction);

// Begins a transaction, calls `body` with it and with `context`, and commits it if `body` returns
// DARTER_OK. After a conflict calls `body` again, at most a thousand times, with a growing pause; a
// transaction that was run more often goes before others that it meets. If `body` returns anything
// else, nothing changes, and that is returned. `body` must not end the transaction, nor jump out.
enum darter_status darter_transact(const struct darter_store *store,
                                   darter_transaction_body body,
                                   void *context);

// Writes all pairs of the pool as of this moment, those of gateways included, to a file, which is
// created or truncated, while other processes go on changing them. Sets `*report` unless it is NULL.
// Only if it returns DARTER_OK the file is a backup. `darter restore - < FILE` reads it too.
enum darter_status darter_backup(const struct darter_store *store,
                                 const char *path,
                                 struct darter_backup_report *report);

// Stores all pairs of a backup in this pool, which must be empty: DARTER_ERROR_USAGE if it is not. The
// pool may have another size and index than the one that was backed up. The pairs appear at one
// moment, when all have been read and verified. Sets `*report` unless it is NULL.
enum darter_status darter_restore(const struct darter_store *store,
                                  const char *path,
                                  struct darter_backup_report *report);

// Walks index and pool and verifies every invariant. Returns DARTER_ERROR_DAMAGED if one is
// violated; `darter_message` then lists the violations. Sets `*report` in both cases, unless it is
// NULL. Other threads of this process must not use the pool during the call; other processes may.
enum darter_status darter_check(const struct darter_store *store,
                                struct darter_check_report *report);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DARTER_H */
