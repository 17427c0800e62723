// The functions of darter.h, as a program in C uses them. Run by scripts/c-check, also under
// valgrind. The argument is a directory for pool files.

#define _POSIX_C_SOURCE 200809L
#include "darter.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int run;

// Ends the program if a condition does not hold.
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        run++;                                                                                     \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s; last message: %s\n", __FILE__, __LINE__, #condition,        \
                    darter_message());                                                             \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static int is(const void *data, size_t length, const char *text) {
    return data != NULL && length == strlen(text) && memcmp(data, text, length) == 0;
}

// Checks that a key has a value; NULL: that it is absent.
static void check_value(darter_store *store, const char *key, const char *text) {
    darter_value value;
    darter_status status = darter_get(store, key, strlen(key), &value);
    CHECK(status == (text ? DARTER_OK : DARTER_NOT_FOUND));
    CHECK(text ? is(value.data, value.length, text) : value.data == NULL && value.length == 0);
    darter_value_free(&value);
    darter_value_free(&value);
}

static darter_status put(darter_store *store, const char *key, const char *value) {
    return darter_put(store, key, strlen(key), value, strlen(value));
}

static void single_keys(darter_store *store) {
    darter_value value;
    CHECK(put(store, "pear", "green") == DARTER_OK);
    check_value(store, "pear", "green");
    CHECK(put(store, "pear", "yellow") == DARTER_OK);
    check_value(store, "pear", "yellow");
    CHECK(darter_put(store, NULL, 0, NULL, 0) == DARTER_OK);
    check_value(store, "", "");
    CHECK(darter_put(store, "a\0b", 3, "\0", 1) == DARTER_OK);
    CHECK(darter_get(store, "a\0b", 3, &value) == DARTER_OK);
    CHECK(value.length == 1 && value.data[0] == 0);
    darter_value_free(&value);
    CHECK(darter_try_insert(store, "pear", 4, "red", 3) == DARTER_REFUSED);
    CHECK(darter_try_insert(store, "plum", 4, "blue", 4) == DARTER_OK);
    CHECK(darter_compare_exchange(store, "plum", 4, "red", 3, "black", 5) == DARTER_REFUSED);
    CHECK(darter_compare_exchange(store, "fig", 3, "", 0, "black", 5) == DARTER_REFUSED);
    CHECK(darter_compare_exchange(store, "plum", 4, "blue", 4, "black", 5) == DARTER_OK);
    check_value(store, "plum", "black");
    CHECK(darter_compare_remove(store, "plum", 4, "blue", 4) == DARTER_REFUSED);
    CHECK(darter_compare_remove(store, "plum", 4, "black", 5) == DARTER_OK);
    CHECK(darter_remove(store, "pear", 4, &value) == DARTER_OK);
    CHECK(is(value.data, value.length, "yellow"));
    darter_value_free(&value);
    CHECK(darter_remove(store, "pear", 4, &value) == DARTER_NOT_FOUND && value.data == NULL);
    CHECK(darter_remove(store, "pear", 4, NULL) == DARTER_NOT_FOUND);
    CHECK(darter_remove(store, "a\0b", 3, NULL) == DARTER_OK);
    CHECK(darter_remove(store, "", 0, NULL) == DARTER_OK);
    CHECK(darter_persist(store) == DARTER_OK);
}

static void many_keys(darter_store *store) {
    darter_pair pairs[] = {
        {{"fig", 3}, {"blue", 4}}, {{"pear", 4}, {"green", 5}}, {{"plum", 4}, {NULL, 0}}};
    darter_bytes keys[] = {{"plum", 4}, {"apple", 5}, {"fig", 3}};
    darter_bytes invalid[] = {{"plum", 4}, {NULL, 5}};
    darter_value values[3];
    CHECK(darter_put_many(store, pairs, 3) == DARTER_OK);
    CHECK(darter_put_many(store, NULL, 0) == DARTER_OK);
    CHECK(darter_get_many(store, keys, 3, values) == DARTER_OK);
    CHECK(is(values[0].data, values[0].length, ""));
    CHECK(values[1].data == NULL);
    CHECK(is(values[2].data, values[2].length, "blue"));
    for (int i = 0; i < 3; i++)
        darter_value_free(&values[i]);
    CHECK(darter_get_many(store, invalid, 2, values) == DARTER_ERROR_ARGUMENT);
    CHECK(strstr(darter_message(), "key 1 is NULL"));
    CHECK(values[0].data == NULL && values[1].data == NULL);
    CHECK(darter_get_many(store, keys, 3, NULL) == DARTER_ERROR_ARGUMENT);
    CHECK(darter_put_many(store, NULL, 3) == DARTER_ERROR_ARGUMENT);
    CHECK(darter_put_many(store, pairs, (size_t)-1) == DARTER_ERROR_ARGUMENT);
}

// Expects fig, pear and plum.
static void ranges(darter_store *store) {
    darter_range *range;
    darter_bytes key, value;
    CHECK(darter_range_open(store, NULL, 0, NULL, 0, &range) == DARTER_OK);
    CHECK(darter_range_next(range, &key, &value) == DARTER_OK);
    CHECK(is(key.data, key.length, "fig") && is(value.data, value.length, "blue"));
    CHECK(darter_range_next_back(range, &key, &value) == DARTER_OK);
    CHECK(is(key.data, key.length, "plum") && is(value.data, value.length, ""));
    CHECK(darter_range_next(range, &key, &value) == DARTER_OK);
    CHECK(is(key.data, key.length, "pear"));
    CHECK(darter_range_next(range, &key, &value) == DARTER_NOT_FOUND && key.data == NULL);
    CHECK(darter_range_next_back(range, &key, &value) == DARTER_NOT_FOUND && value.data == NULL);
    CHECK(darter_range_next(NULL, &key, &value) == DARTER_ERROR_ARGUMENT);
    CHECK(darter_range_next(range, NULL, &value) == DARTER_ERROR_ARGUMENT);
    darter_range_free(range);
    CHECK(darter_range_open(store, "fig", 3, "plum", 4, &range) == DARTER_OK);
    CHECK(darter_range_next_back(range, &key, &value) == DARTER_OK);
    CHECK(is(key.data, key.length, "pear"));
    darter_range_free(range);
    CHECK(darter_range_open(store, "", 0, "", 0, &range) == DARTER_OK);
    CHECK(darter_range_next(range, &key, &value) == DARTER_NOT_FOUND);
    darter_range_free(range);
    CHECK(darter_prefix_open(store, "p", 1, &range) == DARTER_OK);
    CHECK(darter_range_next(range, &key, &value) == DARTER_OK);
    CHECK(is(key.data, key.length, "pear"));
    darter_range_free(range);
    darter_range_free(NULL);
}

static void *in_another_thread(void *transaction) {
    CHECK(darter_transaction_put(transaction, "fig", 3, "", 0) == DARTER_ERROR_ARGUMENT);
    CHECK(darter_commit(transaction) == DARTER_ERROR_ARGUMENT);
    CHECK(darter_rollback(transaction) == DARTER_ERROR_ARGUMENT);
    CHECK(strstr(darter_message(), "thread"));
    return NULL;
}

static void transactions(darter_store *store) {
    darter_transaction *transaction;
    darter_value value;
    pthread_t thread;
    CHECK(darter_begin(store, &transaction) == DARTER_OK);
    CHECK(darter_transaction_get(transaction, "fig", 3, &value) == DARTER_OK);
    CHECK(is(value.data, value.length, "blue"));
    darter_value_free(&value);
    CHECK(darter_transaction_put(transaction, "apple", 5, "red", 3) == DARTER_OK);
    CHECK(darter_transaction_remove(transaction, "fig", 3) == DARTER_OK);
    CHECK(darter_transaction_get(transaction, "fig", 3, &value) == DARTER_NOT_FOUND);
    check_value(store, "fig", "blue");
    CHECK(pthread_create(&thread, NULL, in_another_thread, transaction) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(darter_commit(transaction) == DARTER_OK);
    check_value(store, "fig", NULL);
    check_value(store, "apple", "red");

    CHECK(darter_begin(store, &transaction) == DARTER_OK);
    CHECK(darter_transaction_put(transaction, "apple", 5, "green", 5) == DARTER_OK);
    CHECK(darter_rollback(transaction) == DARTER_OK);
    CHECK(darter_rollback(NULL) == DARTER_OK);
    CHECK(darter_commit(NULL) == DARTER_ERROR_ARGUMENT);
    check_value(store, "apple", "red");

    CHECK(darter_begin(store, &transaction) == DARTER_OK);
    CHECK(darter_transaction_get(transaction, "apple", 5, &value) == DARTER_OK);
    darter_value_free(&value);
    CHECK(put(store, "apple", "brown") == DARTER_OK);
    CHECK(darter_transaction_put(transaction, "apple", 5, "green", 5) == DARTER_OK);
    CHECK(darter_commit(transaction) == DARTER_ERROR_CONFLICT);
    CHECK(darter_is_unsent());
    check_value(store, "apple", "brown");
}

// What `count_up` does.
typedef struct {
    darter_store *store;
    int calls;
    int disturbs;
    darter_status answer;
} task;

// Adds a byte to "count". In the first call another client changes it too, if the task says so.
static darter_status count_up(darter_transaction *transaction, void *context) {
    task *task = context;
    darter_value value;
    char bytes[64] = "";
    darter_status status = darter_transaction_get(transaction, "count", 5, &value);
    CHECK(status == DARTER_OK || status == DARTER_NOT_FOUND);
    CHECK(value.length < sizeof bytes - 1);
    if (value.length > 0)
        memcpy(bytes, value.data, value.length);
    strcat(bytes, "+");
    darter_value_free(&value);
    if (task->calls++ == 0 && task->disturbs)
        CHECK(put(task->store, "count", "other") == DARTER_OK);
    CHECK(darter_transaction_put(transaction, "count", 5, bytes, strlen(bytes)) == DARTER_OK);
    CHECK(darter_commit(transaction) == DARTER_ERROR_ARGUMENT);
    CHECK(darter_rollback(transaction) == DARTER_ERROR_ARGUMENT);
    return task->answer;
}

static void whole_transactions(darter_store *store) {
    task task = {.store = store, .answer = DARTER_OK};
    CHECK(darter_transact(store, count_up, &task) == DARTER_OK);
    check_value(store, "count", "+");
    task.calls = 0;
    task.disturbs = 1;
    CHECK(darter_transact(store, count_up, &task) == DARTER_OK);
    CHECK(task.calls == 2);
    check_value(store, "count", "other+");
    task.disturbs = 0;
    task.answer = DARTER_REFUSED;
    CHECK(darter_transact(store, count_up, &task) == DARTER_REFUSED);
    check_value(store, "count", "other+");
    CHECK(darter_transact(store, NULL, NULL) == DARTER_ERROR_ARGUMENT);
    CHECK(darter_transact(NULL, count_up, &task) == DARTER_ERROR_ARGUMENT);
    CHECK(darter_remove(store, "count", 5, NULL) == DARTER_OK);
}

static void backups(darter_store *store, const char *directory) {
    char path[4096];
    darter_store *copy;
    darter_backup_report taken, restored;
    snprintf(path, sizeof path, "%s/backup", directory);
    CHECK(put(store, "in the backup", "yes") == DARTER_OK);
    CHECK(darter_backup(store, path, &taken) == DARTER_OK);
    CHECK(put(store, "in the backup", "no") == DARTER_OK);
    CHECK(darter_open("mem:16M", NULL, &copy) == DARTER_OK);
    CHECK(darter_restore(copy, path, &restored) == DARTER_OK);
    CHECK(memcmp(&taken, &restored, sizeof taken) == 0 && taken.pairs > 0 && taken.taken_at_ms > 0);
    check_value(copy, "in the backup", "yes");
    CHECK(darter_restore(copy, path, NULL) == DARTER_ERROR_USAGE);
    darter_close(copy);
    CHECK(darter_open("mem:16M", NULL, &copy) == DARTER_OK);
    CHECK(truncate(path, 60) == 0);
    CHECK(darter_restore(copy, path, NULL) == DARTER_ERROR_DAMAGED);
    CHECK(darter_restore(copy, "/no/such/file", NULL) == DARTER_ERROR_OTHER);
    CHECK(darter_backup(copy, NULL, NULL) == DARTER_ERROR_ARGUMENT);
    CHECK(darter_backup(copy, path, NULL) == DARTER_OK);
    CHECK(darter_restore(copy, path, &restored) == DARTER_OK && restored.pairs == 0);
    darter_close(copy);
}

static void bad_input(darter_store *store) {
    static const char zeros[70000];
    darter_store *other = (darter_store *)1;
    darter_value value;
    darter_options options = {.size = sizeof options};
    CHECK(darter_open(NULL, NULL, &other) == DARTER_ERROR_ARGUMENT && other == NULL);
    CHECK(darter_open("mem:16M", NULL, NULL) == DARTER_ERROR_ARGUMENT);
    CHECK(darter_open("\xff", NULL, &other) == DARTER_ERROR_ARGUMENT);
    CHECK(darter_open("memory", NULL, &other) == DARTER_ERROR_USAGE && other == NULL);
    CHECK(strlen(darter_message()) > 0);
    CHECK(darter_open("file:/dev/shm/no/such/pool", NULL, &other) == DARTER_ERROR_USAGE);
    options.size--;
    CHECK(darter_open("mem:16M", &options, &other) == DARTER_ERROR_ARGUMENT);
    options.size++;
    options.flags = 1u << 31;
    CHECK(darter_open("mem:16M", &options, &other) == DARTER_ERROR_ARGUMENT);
    options.flags = DARTER_CREATE | DARTER_EXISTING;
    CHECK(darter_open("mem:16M", &options, &other) == DARTER_ERROR_ARGUMENT);
    options.flags = DARTER_EXISTING;
    CHECK(darter_open("mem:16M", &options, &other) == DARTER_ERROR_USAGE);
    options.flags = DARTER_DURABLE;
    CHECK(darter_open("mem:16M", &options, &other) == DARTER_ERROR_USAGE);
    options.flags = 0;
    options.index = "btree";
    CHECK(darter_open("mem:16M", &options, &other) == DARTER_ERROR_ARGUMENT);
    options.index = NULL;
    options.tls_key = "key.pem";
    CHECK(darter_open("mem:16M", &options, &other) == DARTER_ERROR_ARGUMENT);
    CHECK(darter_get(NULL, "pear", 4, &value) == DARTER_ERROR_ARGUMENT && value.data == NULL);
    CHECK(darter_get(store, "pear", 4, NULL) == DARTER_ERROR_ARGUMENT);
    CHECK(darter_put(store, NULL, 4, "", 0) == DARTER_ERROR_ARGUMENT);
    CHECK(darter_put(store, "pear", (size_t)-1, "", 0) == DARTER_ERROR_ARGUMENT);
    CHECK(darter_put(store, zeros, sizeof zeros, "", 0) == DARTER_ERROR_TOO_LONG);
    CHECK(darter_is_unsent());
    darter_close(NULL);
    darter_value_free(NULL);
}

// A pool with its own options, which outlives its store's handle in a range, and becomes full.
static void full_pool(void) {
    darter_options options = {.size = sizeof options, .cache_bytes = 65536, .lease_ms = 2000};
    darter_store *store;
    darter_range *range;
    darter_bytes key, value;
    darter_transaction *transaction;
    char *large = calloc(1, 100000);
    darter_status status = DARTER_OK;
    CHECK(large != NULL && darter_open("mem:8M", &options, &store) == DARTER_OK);
    for (int i = 0; status == DARTER_OK; i++)
        status = darter_put(store, &i, sizeof i, large, 100000);
    CHECK(status == DARTER_ERROR_FULL && darter_is_unsent());
    free(large);
    CHECK(darter_range_open(store, NULL, 0, NULL, 0, &range) == DARTER_OK);
    CHECK(darter_begin(store, &transaction) == DARTER_OK);
    darter_close(store);
    CHECK(darter_range_next(range, &key, &value) == DARTER_OK && value.length == 100000);
    darter_range_free(range);
    CHECK(darter_commit(transaction) == DARTER_OK);
}

// What a child process finds in the parent's handles, and in the pool that it opens itself.
static void child(darter_store *store, darter_range *range, const char *url) {
    darter_value value;
    darter_bytes key, found;
    CHECK(darter_get(store, "pear", 4, &value) == DARTER_ERROR_FORKED);
    CHECK(put(store, "pear", "lost") == DARTER_ERROR_FORKED);
    CHECK(darter_range_next(range, &key, &found) == DARTER_ERROR_FORKED && key.data == NULL);
    darter_range_free(range);
    darter_close(store);
    CHECK(darter_open(url, NULL, &store) == DARTER_OK);
    check_value(store, "pear", "green");
    CHECK(put(store, "child", "was here") == DARTER_OK);
    darter_close(store);
}

static void processes(const char *directory) {
    char url[4096];
    darter_store *store;
    darter_range *range;
    darter_check_report report;
    darter_options options = {.size = sizeof options, .flags = DARTER_CREATE_NEW};
    int status, ends[2];
    char byte;
    snprintf(url, sizeof url, "file:%s/shared.pool?size=16M", directory);
    CHECK(darter_open(url, &options, &store) == DARTER_OK);
    CHECK(put(store, "pear", "green") == DARTER_OK);
    CHECK(darter_range_open(store, NULL, 0, NULL, 0, &range) == DARTER_OK);
    fflush(NULL);
    CHECK(pipe(ends) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        child(store, range, url);
        CHECK(write(ends[1], "", 1) == 1);
        // The child does not exit: valgrind would report the memory of the parent's threads, which
        // the child does not have, as leaked.
        for (;;)
            pause();
    }
    CHECK(close(ends[1]) == 0 && read(ends[0], &byte, 1) == 1 && close(ends[0]) == 0);
    CHECK(kill(pid, SIGKILL) == 0 && waitpid(pid, &status, 0) == pid);
    darter_range_free(range);
    check_value(store, "child", "was here");
    CHECK(darter_check(store, &report) == DARTER_OK);
    CHECK(report.keys == 2 && report.violations == 0);
    CHECK(darter_check(store, NULL) == DARTER_OK);
    CHECK(darter_check(NULL, &report) == DARTER_ERROR_ARGUMENT);
    darter_close(store);

    CHECK(darter_open(url, &options, &store) == DARTER_ERROR_USAGE);
    options.flags = DARTER_READ_ONLY;
    CHECK(darter_open(url, &options, &store) == DARTER_OK);
    check_value(store, "child", "was here");
    CHECK(put(store, "pear", "red") == DARTER_ERROR_READ_ONLY);
    darter_close(store);
}

static void other_files(const char *directory) {
    char url[4096];
    darter_store *store;
    darter_options options = {.size = sizeof options, .index = "dart"};
    darter_transaction *transaction;
    snprintf(url, sizeof url, "%s/text", directory);
    FILE *file = fopen(url, "w");
    CHECK(file != NULL);
    for (int i = 0; i < 1 << 20; i++)
        fputs("no pool of darter", file);
    CHECK(fclose(file) == 0);
    snprintf(url, sizeof url, "file:%s/text", directory);
    CHECK(darter_open(url, NULL, &store) == DARTER_ERROR_USAGE);
    snprintf(url, sizeof url, "file:%s/dart.pool?size=16M", directory);
    CHECK(darter_open(url, &options, &store) == DARTER_OK);
    CHECK(darter_begin(store, &transaction) == DARTER_OK);
    CHECK(darter_transaction_put(transaction, "pear", 4, "green", 5) == DARTER_OK);
    CHECK(darter_commit(transaction) < 0);
    darter_close(store);
    options.index = "quiver";
    CHECK(darter_open(url, &options, &store) == DARTER_ERROR_VERSION);
}

int main(int count, char **arguments) {
    darter_store *store;
    if (count != 2) {
        fprintf(stderr, "usage: %s DIRECTORY\n", arguments[0]);
        return 2;
    }
    CHECK(strlen(darter_message()) == 0);
    CHECK(strchr(darter_version(), '.') != NULL);
    CHECK(darter_open("mem:16M", NULL, &store) == DARTER_OK);
    single_keys(store);
    many_keys(store);
    ranges(store);
    transactions(store);
    whole_transactions(store);
    backups(store, arguments[1]);
    bad_input(store);
    CHECK(darter_check(store, NULL) == DARTER_OK);
    darter_close(store);
    full_pool();
    processes(arguments[1]);
    other_files(arguments[1]);
    printf("darter %s: %d checks passed\n", darter_version(), run);
    return 0;
}
