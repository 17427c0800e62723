/* Checks that the kernel of this machine copies whole words. scripts/rdma-vm runs it in its guest.
 *
 * An RDMA READ may return a word only as some CPU stored it, and Soft-RoCE serves READ and WRITE with
 * the kernel's memory copy. Under emulation that copy moves single bytes if the processor advertises
 * fast `rep movsb` (erms, fsrm), and words tear. Here the kernel copies 1 KiB of words, by
 * process_vm_readv and process_vm_writev, while another thread atomically stores to, or loads from,
 * the same words. Every stored word repeats one byte, so a word with two different bytes is a mixture
 * of two stores.
 *
 * Prints a line of counts. Exit code: 0 if no word was torn, 1 if one was, 2 if a call failed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WORDS = 128, COPIES = 20000 };
#define REPEATED 0x0101010101010101u

static _Atomic uint64_t shared[WORDS] __attribute__((aligned(4096)));
static _Atomic int ended;

static int is_torn(uint64_t word) { return word != (word & 0xff) * REPEATED; }

/* Stores to the shared words, all of one value, then all of the next. */
static void *store(void *unused) {
    for (uint64_t value = 0; !atomic_load_explicit(&ended, memory_order_relaxed); value++)
        for (int i = 0; i < WORDS; i++)
            atomic_store_explicit(&shared[i], (value & 0xff) * REPEATED, memory_order_relaxed);
    return unused;
}

/* Loads the shared words and counts torn ones. */
static void *load(void *torn) {
    while (!atomic_load_explicit(&ended, memory_order_relaxed))
        for (int i = 0; i < WORDS; i++)
            *(unsigned long *)torn += is_torn(atomic_load_explicit(&shared[i], memory_order_relaxed));
    return NULL;
}

static int fail(const char *what, int error) {
    printf("%s: %s\n", what, strerror(error));
    return 2;
}

int main(void) {
    uint64_t own[WORDS] __attribute__((aligned(4096)));
    struct iovec here = {own, sizeof own}, there = {shared, sizeof shared};
    unsigned long read_torn = 0, write_torn = 0;
    pthread_t other;
    int error;

    if ((error = pthread_create(&other, NULL, store, NULL))) return fail("pthread_create", error);
    for (int copy = 0; copy < COPIES; copy++) {
        if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) != sizeof own)
            return fail("process_vm_readv", errno);
        for (int i = 0; i < WORDS; i++) read_torn += is_torn(own[i]);
    }
    ended = 1;
    pthread_join(other, NULL);

    memset(shared, 0, sizeof shared);
    ended = 0;
    if ((error = pthread_create(&other, NULL, load, &write_torn))) return fail("pthread_create", error);
    for (int copy = 0; copy < COPIES; copy++) {
        for (int i = 0; i < WORDS; i++) own[i] = (copy & 0xff) * REPEATED;
        if (process_vm_writev(getpid(), &here, 1, &there, 1, 0) != sizeof own)
            return fail("process_vm_writev", errno);
    }
    ended = 1;
    pthread_join(other, NULL);

    printf("%d copies each way of 1 KiB: %lu torn words in reads, %lu in writes\n", COPIES, read_torn,
           write_torn);
    return read_torn || write_torn;
}
