/* Makes one write of one file fail, once: stands for a disk that loses a single write and works before and after it.

   While the file that SHIM_ORDER names exists, it says which write: a pattern of a path, the number of the write to such a
   file, and the errno. The failure removes the file. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define DESCRIPTORS 4096
static int writes[DESCRIPTORS];
static char names[DESCRIPTORS][512];

ssize_t write(int descriptor, const void *data, size_t length) {
    static ssize_t (*original)(int, const void *, size_t);
    const char *order = getenv("SHIM_ORDER");
    char link[64], name[512], match[256];
    int number, code;
    ssize_t size;
    FILE *file;
    if (!original) original = dlsym(RTLD_NEXT, "write");
    if (!order || descriptor < 0 || descriptor >= DESCRIPTORS || access(order, F_OK))
        return original(descriptor, data, length);
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    size = readlink(link, name, sizeof name - 1);
    if (size < 0 || !(file = fopen(order, "r"))) return original(descriptor, data, length);
    name[size] = 0;
    if (fscanf(file, "%255s %d %d", match, &number, &code) != 3) match[0] = 0, number = -1;
    fclose(file);
    if (fnmatch(match, name, 0)) return original(descriptor, data, length);
    if (strcmp(names[descriptor], name)) {
        strcpy(names[descriptor], name);
        writes[descriptor] = 0;
    }
    if (++writes[descriptor] != number || unlink(order)) return original(descriptor, data, length);
    errno = code;
    return -1;
}
