/* Windows' performance counters without Windows: one query, one counter, an instance per process
   and adapter. PDH="luid=N;pid=N;grow=MiB;fail=N;status=N;object=0": `grow` is what each question
   adds to this process's shared memory, `pid` another process that has much of it (not ours). */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { uint16_t *name; uint32_t status; uint32_t gap; int64_t value; } Item;
enum { ITEMS = 4, NAME = 80, MORE_DATA = (int)0x800007D2, NO_OBJECT = (int)0xC0000BB8 };
static int64_t grown;
static int query, counter, collected;

static int64_t setting(const char *key, int64_t otherwise) {
    char name[32];
    const char *text = getenv("PDH");
    snprintf(name, sizeof name, "%s=", key);
    const char *found = text ? strstr(text, name) : NULL;
    return found ? atoll(found + strlen(name)) : otherwise;
}
int PdhOpenQueryW(const uint16_t *source, uintptr_t user, void **out) {
    *out = &query; return source || user ? 1 : 0;
}
int PdhAddEnglishCounterW(void *in, const uint16_t *path, uintptr_t user, void **out) {
    static const char wanted[] = "\\GPU Process Memory(*)\\Shared Usage";
    for (size_t n = 0; n < sizeof wanted; n++) if (path[n] != (uint16_t)wanted[n]) return (int)0xC0000BC0;
    if (in != &query || user) return 1;
    if (!setting("object", 1)) return NO_OBJECT;   /* before Windows 10 1709 */
    *out = &counter; return 0;
}
int PdhCollectQueryData(void *in) {
    if (collected++) grown += setting("grow", 0);
    return in == &query ? (int)setting("fail", 0) : 1;
}
static void write_name(uint16_t *to, int64_t pid, int64_t luid) {
    char text[NAME];
    snprintf(text, sizeof text, "pid_%lld_luid_0x%08X_0x%08X_phys_0", (long long)pid,
             (unsigned)(luid >> 32), (unsigned)luid);
    for (size_t n = 0; n <= strlen(text); n++) to[n] = (uint16_t)text[n];
}
int PdhGetFormattedCounterArrayW(void *in, uint32_t format, uint32_t *size, uint32_t *count, Item *items) {
    uint32_t needed = ITEMS * (sizeof(Item) + 2 * NAME);
    int64_t luid = setting("luid", 7), own = getpid();
    if (in != &counter || format != 0x400) return 1;
    if (!items || *size < needed) { *size = needed; return MORE_DATA; }
    for (int n = 0; n < ITEMS; n++) items[n].name = (uint16_t *)(items + ITEMS) + n * NAME;
    write_name(items[0].name, own, luid);        /* ours on this card */
    write_name(items[1].name, own, luid + 1);    /* ours on another card */
    write_name(items[2].name, own + 1, luid);    /* somebody else's */
    write_name(items[3].name, own, luid);        /* ours, not valid */
    for (int n = 0; n < ITEMS; n++) {
        items[n].status = n == 3 ? 0xC0000BBA : (uint32_t)setting("status", 0);
        items[n].value = n ? ((int64_t)9000 + grown * 7) << 20 : (50 + grown) << 20;
    }
    *size = needed; *count = ITEMS; return 0;
}
int PdhCloseQuery(void *in) { return in == &query ? 0 : 1; }
