/* A CUDA driver (with -DHIP: a HIP runtime) without a card. FAKE="key=value;..." says how it behaves;
   sizes are MiB. Keys: see the calls of setting() and trap() below. */
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef HIP
#define F(cuda, hip) hip
#else
#define F(cuda, hip) cuda
#endif
#define TRAP(cuda, hip) do { int code = trap(HIP_NAME(cuda, hip)); if (code) return code; } while (0)
#ifdef HIP
#define HIP_NAME(cuda, hip) #hip
#else
#define HIP_NAME(cuda, hip) #cuda
#endif

enum { MOST = 256, DEVICES = 16 };
#define MIB ((uint64_t)1 << 20)
#define PAGE (2 * MIB)

typedef struct { uint64_t at, size, offset; uint32_t value; int touched; } Block;
static Block blocks[MOST];
static uint64_t used, held_by_others;
static int allocations, sticky;
static double clock_ms;

static const char *setting(const char *key) {
    static char value[256];
    const char *text = getenv("FAKE");
    size_t length = strlen(key);
    while (text && *text) {
        const char *end = strchr(text, ';');
        size_t all = end ? (size_t)(end - text) : strlen(text);
        if (all > length && !strncmp(text, key, length) && text[length] == '=') {
            snprintf(value, sizeof value, "%.*s", (int)(all - length - 1), text + length + 1);
            return value;
        }
        text = end ? end + 1 : NULL;
    }
    return NULL;
}

static uint64_t number(const char *key, uint64_t otherwise) {
    const char *text = setting(key);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

static void note(const char *what, uint64_t size) {
    const char *path = setting("log");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file) return;
    fprintf(file, "%s %llu\n", what, (unsigned long long)size);
    fclose(file);
}

/* crash=NAME, abort=NAME, exit=NAME:CODE, hang=NAME, spin=NAME, fork=NAME, fail=NAME:CODE */
static int trap(const char *name) {
    static const char *ways[] = {"crash", "abort", "exit", "hang", "spin", "fork", "fail"};
    if (sticky) return sticky;
    for (int way = 0; way < 7; way++) {
        const char *text = setting(ways[way]);
        size_t length = strlen(name);
        if (!text || strncmp(text, name, length) || (text[length] && text[length] != ':')) continue;
        int code = text[length] ? atoi(text + length + 1) : 0;
        if (way == 0) raise(SIGSEGV);
        if (way == 1) abort();
        if (way == 2) _exit(code);
        if (way == 3) for (;;) sleep(60);
        if (way == 4) for (volatile int on = 1; on;) {}
        if (way == 5) { if (!fork()) { setsid(); sleep(25); _exit(0); } for (;;) sleep(60); }
        if (way == 6) { if (code == 700) sticky = code; return code; }
    }
    return number("stub", 0) ? 34 : 0;
}

__attribute__((constructor)) static void at_load(void) { trap("load"); }
__attribute__((destructor)) static void at_unload(void) { trap("unload"); }

/* -- devices: order reversed with reverse=1 unless CUDA_DEVICE_ORDER=PCI_BUS_ID; hidden ones ---- */

static int visible(int *order) {
    int all = (int)number("devices", 1), count = 0, real[DEVICES];
    const char *by = getenv("CUDA_DEVICE_ORDER"), *shown = getenv("CUDA_VISIBLE_DEVICES");
    int turn = number("reverse", 0) && !(by && !strcmp(by, "PCI_BUS_ID"));
    for (int n = 0; n < all; n++) real[n] = turn ? all - 1 - n : n;
    if (!shown) { memcpy(order, real, sizeof(int) * all); return all; }
    while (*shown) {
        char *end; long n = strtol(shown, &end, 10);
        if (!strncmp(shown, "GPU-", 4) && shown[4]) {   /* a prefix of a UUID that is unique */
            size_t length = strcspn(shown + 4, ",");
            int hits = 0;
            for (int d = 0; d < all; d++) {
                char digits[40]; int b = 0x10 + real[d];
                snprintf(digits, sizeof digits, "%02x%02x%02x%02x-%02x%02x-%02x%02x", b, b, b, b, b, b, b, b);
                if (!strncmp(digits, shown + 4, length < 18 ? length : 18)) { n = d; hits++; }
            }
            end = (char *)shown + 4 + length;
            if (hits != 1) break;
        }
        if (end == shown || n < 0 || n >= all) break;   /* a bad entry hides the rest */
        order[count++] = real[n];
        shown = *end == ',' ? end + 1 : end;
    }
    return count;
}

static uint64_t total(int device) { return (number("total", 24564) - 8192 * (uint64_t)device) * MIB; }
static int current;

int F(cuInit, hipInit)(unsigned flags) { (void)flags; TRAP(cuInit, hipInit); return 0; }
int F(cuDriverGetVersion, hipDriverGetVersion)(int *v) {
    TRAP(cuDriverGetVersion, hipDriverGetVersion);
#ifdef HIP
    *v = 60300000; return 0;
#else
    *v = (int)number("version", 12090); return 0;
#endif
}
int F(cuDeviceGetCount, hipGetDeviceCount)(int *n) {
    int order[DEVICES]; TRAP(cuDeviceGetCount, hipGetDeviceCount); *n = visible(order); return 0;
}
static int real_device(int ordinal) { int order[DEVICES]; visible(order); return order[ordinal]; }
int F(cuDeviceGetName, hipDeviceGetName)(char *name, int length, int device) {
    TRAP(cuDeviceGetName, hipDeviceGetName);
    const char *given = setting("name");
    snprintf(name, length, "%s %c", given ? given : "Fake GPU", 'A' + real_device(device));
    return 0;
}
int F(cuDeviceGetPCIBusId, hipDeviceGetPCIBusId)(char *id, int length, int device) {
    TRAP(cuDeviceGetPCIBusId, hipDeviceGetPCIBusId);
    snprintf(id, length, "0000:%02X:00.0", real_device(device) + 1); return 0;
}
int F(cuDeviceTotalMem_v2, hipDeviceTotalMem)(size_t *bytes, int device) {
    TRAP(cuDeviceTotalMem_v2, hipDeviceTotalMem); *bytes = total(real_device(device)); return 0;
}
#ifdef HIP
int hipSetDevice(int device) { TRAP(-, hipSetDevice); current = real_device(device); return 0; }
const char *hipGetErrorName(int code) { return code == 2 ? "hipErrorOutOfMemory" : "hipErrorUnknown"; }
#else
int cuDeviceGet(int *device, int ordinal) { TRAP(cuDeviceGet, -); *device = ordinal; return 0; }
#ifndef OLD
int cuDeviceGetUuid_v2(char *uuid, int device) {
    TRAP(cuDeviceGetUuid_v2, -); memset(uuid, 0x10 + real_device(device), 16); return 0;
}
int cuDeviceGetLuid(char *luid, unsigned *nodes, int device) {
    TRAP(cuDeviceGetLuid, -);
    if (!number("luid", 0)) return 801;
    memset(luid, 0, 8); luid[0] = (char)(7 + device); *nodes = 1; return 0;
}
#endif
int cuDeviceGetUuid(char *uuid, int device) { return memset(uuid, 0x10 + real_device(device), 16), 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    TRAP(cuDeviceGetAttribute, -); (void)device;
    switch (attribute) {
    case 75: *value = 8; return 0;
    case 76: *value = 9; return 0;
    case 16: *value = (int)number("sm", 128); return 0;
    case 36: *value = (int)number("clock", 10501000); return 0;
    case 37: *value = 384; return 0;
    case 18: *value = (int)number("integrated", 0); return 0;
    case 17: *value = (int)number("display", 0); return 0;
    case 20: *value = (int)number("mode", 0); return 0;
    case 35: *value = 0; return 0;
    }
    return 1;
}
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) { (void)device; (void)flags; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) {
    TRAP(cuDevicePrimaryCtxRetain, -); *context = &current; current = real_device(device);
    used += number("context", 300) * MIB; return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
    TRAP(cuDevicePrimaryCtxRelease_v2, -); (void)device; used -= number("context", 300) * MIB; return 0;
}
int cuCtxSetCurrent(void *context) { (void)context; TRAP(cuCtxSetCurrent, -); return 0; }
int cuGetErrorName(int code, const char **text) {
    *text = code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : code == 803 ? "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"
          : code == 4242 ? NULL : "CUDA_ERROR_OTHER";
    return *text ? 0 : 1;
}
#endif

/* -- memory ---------------------------------------------------------------------------------- */

int F(cuMemGetInfo_v2, hipMemGetInfo)(size_t *free_, size_t *total_) {
    TRAP(cuMemGetInfo_v2, hipMemGetInfo);
    uint64_t taken = used + number("others", 0) * MIB + held_by_others, all = total(current);
    *total_ = number("no_total", 0) ? 0 : all;
    *free_ = taken > all ? 0 : all - taken;
    if (number("greedy", 0)) *free_ = all + number("greedy", 0) * MIB;
    return 0;
}

/* extents=A,B,...: a request is granted only inside one of them */
static int place(Block *block, uint64_t size) {
    char text[256]; const char *given = setting("extents");
    uint64_t start = 0;
    if (!given) return 1;
    snprintf(text, sizeof text, "%s", given);
    for (char *word = strtok(text, ","); word; word = strtok(NULL, ",")) {
        uint64_t length = strtoull(word, NULL, 10) * MIB, inside = 0;
        for (int n = 0; n < MOST; n++)
            if (blocks[n].size && blocks[n].offset >= start && blocks[n].offset < start + length)
                inside += blocks[n].size;
        if (length - inside >= size) { block->offset = start + inside; return 1; }
        start += length + MIB;
    }
    return 0;
}

int F(cuMemAlloc_v2, hipMalloc)(uint64_t *pointer, size_t asked) {
    uint64_t size = (asked + PAGE - 1) / PAGE * PAGE, most;
    note("alloc", asked);
    TRAP(cuMemAlloc_v2, hipMalloc);
    if (!asked) return 1;
    allocations++;
    if (number("flaky", 0) && allocations % number("flaky", 0) == 0) return 2;
    if (number("thief", 0) && allocations == (int)number("thief", 0)) held_by_others = 2048 * MIB;
    if (number("only_even", 0) && asked / PAGE % 2) return 2;
    most = number("budget", 0) ? number("budget", 0) * MIB : total(current);
    if (number("spill", 0)) most = total(current) * 2;
    if (used + held_by_others + number("others", 0) * MIB + size > most)
        return (int)number("refusal", 2);
    if (number("block", 0) && size > number("block", 0) * MIB) return 2;
    for (int n = 0; n < MOST; n++) {
        if (blocks[n].size) continue;
        Block made = {(uint64_t)(n + 1) << 40, size, 0, 0, 0};
        if (!place(&made, size)) return 2;
        if (number("null", 0)) { *pointer = 0; return 0; }
        blocks[n] = made; used += size; *pointer = made.at; return 0;
    }
    return 2;
}
static Block *block_of(uint64_t pointer) { return &blocks[(pointer >> 40) - 1]; }
int F(cuMemFree_v2, hipFree)(uint64_t pointer) {
    TRAP(cuMemFree_v2, hipFree);
    Block *block = block_of(pointer);
    note("free", block->size);
    if (!number("leak", 0)) used -= block->size;
    block->size = 0; block->touched = 0; return 0;
}

/* -- time: 800 GB/s on the card, 12 over the bus --------------------------------------------- */

int F(cuMemsetD32Async, hipMemsetD32Async)(uint64_t at, uint32_t value, size_t count, void *stream) {
    (void)stream; TRAP(cuMemsetD32Async, hipMemsetD32Async);
    Block *block = block_of(at);
    if (number("resident", 0) && used > number("resident", 0) * MIB) return (int)number("refusal", 600);
    double rate = 800e6; /* bytes per ms */
    uint64_t end = number("context", 300) * MIB, last = (at & (((uint64_t)1 << 40) - 1)) + 4 * count;
    for (Block *other = blocks; other < block; other++) end += other->size;
    if (number("spill", 0) && end + last > number("spill", 0) * MIB) rate = 12e6;
    if (number("paging", 0) && used > number("paging", 0) * MIB) rate = 12e6;
    if (number("first_slow", 0) && block->touched < 1) rate = 2e6;
    if (number("all_slow", 0)) rate = 12e6;
    if (last >= block->size) block->touched++;
    block->value = value;
    clock_ms += 4.0 * (double)count / rate; return 0;
}
int F(cuEventCreate, hipEventCreateWithFlags)(void **event, unsigned flags) {
    (void)flags; TRAP(cuEventCreate, hipEventCreateWithFlags); *event = malloc(sizeof(double)); return 0;
}
int F(cuEventRecord, hipEventRecord)(void *event, void *stream) {
    (void)stream; *(double *)event = clock_ms; return 0;
}
int F(cuEventSynchronize, hipEventSynchronize)(void *event) {
    (void)event; TRAP(cuEventSynchronize, hipEventSynchronize); return 0;
}
int F(cuEventElapsedTime, hipEventElapsedTime)(float *ms, void *begun, void *ended) {
    *ms = (float)(*(double *)ended - *(double *)begun); return 0;
}
int F(cuEventDestroy_v2, hipEventDestroy)(void *event) { free(event); return 0; }
int F(cuMemcpyDtoH_v2, hipMemcpyDtoH)(void *to, uint64_t from, size_t size) {
    TRAP(cuMemcpyDtoH_v2, hipMemcpyDtoH); (void)size;
    *(uint32_t *)to = number("forget", 0) ? 0 : block_of(from)->value; return 0;
}
