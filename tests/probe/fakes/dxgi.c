/* Windows' graphics interface without Windows: three adapters, COM's tables of functions.
   DXGI="budget=MiB;usage=MiB;grow=MiB;twins=1": `grow` is what each question adds to shared usage;
   twins: the two cards have one name. The third is a processor with the name of the first. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { void **table; uint64_t luid; const char *name; uint32_t flags; } Thing;
static int released;

static int64_t setting(const char *key, int64_t otherwise) {
    char name[32];
    const char *text = getenv("DXGI");
    snprintf(name, sizeof name, "%s=", key);
    const char *found = text ? strstr(text, name) : NULL;
    return found ? atoll(found + strlen(name)) : otherwise;
}
static int32_t release(Thing *self) { (void)self; return ++released; }
static int32_t query(Thing *self, const unsigned char *id, void **out) {
    static const unsigned char adapter3[] = {0xa4, 0x67, 0x59, 0x64, 0x92, 0x13, 0x10, 0x43,
                                             0xa7, 0x98, 0x80, 0x53, 0xce, 0x3e, 0x93, 0xfd};
    *out = self;
    return memcmp(id, adapter3, 16) ? (int32_t)0x80004002 : 0;
}
static int32_t describe(Thing *self, char *out) {
    const char *name = setting("twins", 0) ? "Fake GPU A" : self->name;
    memset(out, 0, 312);
    for (size_t n = 0; n < strlen(name); n++) out[2 * n] = name[n];
    memcpy(out + 296, &self->luid, 8); memcpy(out + 304, &self->flags, 4); return 0;
}
static int32_t memory(Thing *self, uint32_t node, int32_t group, uint64_t *out) {
    static int64_t grown;
    (void)self;
    if (node) return -1;
    out[0] = (uint64_t)(group ? 16384 : setting("budget", 20000)) << 20;
    out[1] = (uint64_t)(group ? 100 + grown : setting("usage", 0)) << 20;
    out[2] = out[3] = 0;
    if (group) grown += setting("grow", 0);
    return 0;
}
static void *adapter_table[] = {query, 0, release, 0, 0, 0, 0, 0, 0, 0, describe, 0, 0, 0, memory};
static Thing adapters[] = {{adapter_table, 3, "Fake GPU B", 0}, {adapter_table, 7, "Fake GPU A", 0},
                           {adapter_table, 9, "Fake GPU A", 2}};
static int32_t enumerate(Thing *self, uint32_t place, Thing **out) {
    (void)self;
    if (place > 2) return (int32_t)0x887A0002;
    *out = &adapters[place]; return 0;
}
static void *factory_table[] = {query, 0, release, 0, 0, 0, 0, 0, 0, 0, 0, 0, enumerate};
static Thing factory = {factory_table, 0, "", 0};
int32_t CreateDXGIFactory1(const unsigned char *id, void **out) {
    *out = &factory;
    return id[0] == 0x78 && id[15] == 0x87 ? (int32_t)setting("factory", 0) : (int32_t)0x80004002;
}
