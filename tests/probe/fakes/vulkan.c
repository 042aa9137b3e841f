/* A Vulkan loader without a GPU. VK="key=value;..." says what it shows; sizes are MiB.
   cards=KINDS (letters d i c v: discrete, integrated, CPU, virtual), bar= (a small visible heap),
   budget=, usage= (of the large heap), enumerate=CODE, instance=CODE, lost=1 (at submit), same=1
   (all cards have one UUID), drivers=3,2.. (driver ids), vendor=, real= (bytes that can be had). */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)
typedef struct { uint32_t type; uint32_t pad; void *next; } Head;
static char cards[17] = "d";
static uint64_t used, sizes[512], bound[512], written[512];
static int made = 1, memories = 1;
static unsigned char window[64];

static const char *setting(const char *key) {
    static char value[64];
    const char *text = getenv("VK");
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
static int64_t number(const char *key, int64_t otherwise) {
    const char *text = setting(key);
    return text ? strtoll(text, NULL, 10) : otherwise;
}
static void put32(void *at, size_t offset, uint32_t value) { memcpy((char *)at + offset, &value, 4); }
static void put64(void *at, size_t offset, uint64_t value) { memcpy((char *)at + offset, &value, 8); }
static uint32_t get32(const void *at, size_t offset) { uint32_t v; memcpy(&v, (const char *)at + offset, 4); return v; }
static uint64_t get64(const void *at, size_t offset) { uint64_t v; memcpy(&v, (const char *)at + offset, 8); return v; }
static char kind(void *device) { return cards[(uintptr_t)device - 1]; }

int vkEnumerateInstanceVersion(uint32_t *version) { *version = (1u << 22) | (3u << 12); return 0; }
int vkCreateInstance(const void *a, const void *b, void **instance) {
    (void)a; (void)b; *instance = (void *)1;
    if (setting("cards")) snprintf(cards, sizeof cards, "%s", setting("cards"));
    return (int)number("instance", 0);
}
int vkEnumeratePhysicalDevices(void *instance, uint32_t *count, void **devices) {
    (void)instance;
    if (number("enumerate", 0)) { *count = 0; return (int)number("enumerate", 0); }
    uint32_t all = (uint32_t)strlen(cards);
    for (uint32_t n = 0; devices && n < all; n++) devices[n] = (void *)(uintptr_t)(n + 1);
    *count = all; return 0;
}
void vkGetPhysicalDeviceProperties2(void *device, void *out) {
    uintptr_t place = (uintptr_t)device - 1;
    for (Head *head = out; head; head = head->next) {
        if (head->type == 1000059001) {
            char which = kind(device);
            put32(head, 16, (1u << 22) | (3u << 12));
            put32(head, 24, (uint32_t)number("vendor", 0x1002));
            put32(head, 32, which == 'd' ? 2 : which == 'i' ? 1 : which == 'c' ? 4 : 3);
            snprintf((char *)head + 36, 256, "Fake Vulkan %c", (char)('A' + place));
        } else if (head->type == 1000168000) put64(head, 24, (uint64_t)number("allocation", 4096) * MIB);
        else if (head->type == 1000413001) put64(head, 16, (uint64_t)number("buffer", 4095) * MIB);
        else if (head->type == 1000196000) {
            const char *ids = setting("drivers");
            uint32_t id = 3;
            for (uintptr_t n = 0; ids && n <= place; n++) { id = (uint32_t)atoi(ids); ids = strchr(ids, ','); if (ids) ids++; }
            put32(head, 16, id); strcpy((char *)head + 20, "fake"); strcpy((char *)head + 276, "1.0");
        } else if (head->type == 1000071004) memset((char *)head + 16, number("same", 0) ? 9 : (int)place + 1, 16);
        else if (head->type == 1000212000) put32(head, 20, (uint32_t)place + 3);
    }
}
void vkGetPhysicalDeviceFeatures2(void *device, void *out) {
    (void)device;
    for (Head *head = out; head; head = head->next) if (head->type == 49) put32(head, 16, number("old", 0) ? 0 : 1);
}
void vkGetPhysicalDeviceMemoryProperties2(void *device, void *out) {
    int64_t bar = number("bar", 0);
    for (Head *head = out; head; head = head->next) {
        if (head->type == 1000059006) {   /* device-local; host-visible; device-local and visible */
            put32(head, 16, bar ? 3 : 2);
            put32(head, 20, kind(device) == 'i' ? 7 : 1); put32(head, 24, 0);
            put32(head, 28, 6); put32(head, 32, 1);
            put32(head, 36, 7); put32(head, 40, 2);
            put32(head, 276, bar ? 3 : 2);
            put64(head, 280, (uint64_t)number("heap", 8192) * MIB); put32(head, 288, 1);
            put64(head, 296, 16384 * MIB); put32(head, 304, 0);
            put64(head, 312, (uint64_t)bar * MIB); put32(head, 320, 1);
        } else if (head->type == 1000237000) {
            put64(head, 16, (uint64_t)number("budget", 0) * MIB); put64(head, 144, (uint64_t)number("usage", 0) * MIB + used);
            put64(head, 24, 16384 * MIB); put64(head, 32, (uint64_t)bar * MIB);
        }
    }
}
int vkEnumerateDeviceExtensionProperties(void *device, const char *layer, uint32_t *count, char *rows) {
    (void)device; (void)layer;
    *count = setting("budget") ? 2 : 1;
    if (rows) { strcpy(rows, "VK_EXT_pci_bus_info"); if (*count > 1) strcpy(rows + 260, "VK_EXT_memory_budget"); }
    return 0;
}
void vkGetPhysicalDeviceQueueFamilyProperties(void *device, uint32_t *count, char *rows) {
    (void)device; *count = 2;
    if (rows) { put32(rows, 0, 4); put32(rows, 24, 3); }
}
int vkCreateDevice(void *p, const void *i, const void *a, void **device) { (void)i; (void)a; *device = p; return 0; }
void vkDestroyDevice(void *device, const void *a) { (void)device; (void)a; }
void vkGetDeviceQueue(void *d, uint32_t f, uint32_t n, void **queue) { (void)d; (void)n; *queue = (void *)(uintptr_t)(f + 1); }
int vkDeviceWaitIdle(void *device) { (void)device; return 0; }
int vkCreateCommandPool(void *d, const void *i, const void *a, uint64_t *pool) { (void)d; (void)i; (void)a; *pool = 1; return 0; }
int vkAllocateCommandBuffers(void *d, const void *i, void **buffer) { (void)d; (void)i; *buffer = (void *)1; return 0; }
int vkCreateFence(void *d, const void *i, const void *a, uint64_t *fence) { (void)d; (void)i; (void)a; *fence = 1; return 0; }
int vkBeginCommandBuffer(void *c, const void *i) { (void)c; (void)i; return 0; }
int vkEndCommandBuffer(void *c) { (void)c; return 0; }
int vkQueueSubmit(void *q, uint32_t n, const void *s, uint64_t f) { (void)n; (void)s; (void)f; return number("lost", 0) ? -4 : q == (void *)2 ? 0 : -3; }
int vkWaitForFences(void *d, uint32_t n, const void *f, uint32_t all, uint64_t ns) { (void)d; (void)n; (void)f; (void)all; (void)ns; return (int)number("wait", 0); }
int vkResetFences(void *d, uint32_t n, const void *f) { (void)d; (void)n; (void)f; return 0; }
void vkCmdPipelineBarrier(void *c, ...) { (void)c; }
void vkCmdFillBuffer(void *c, uint64_t buffer, uint64_t at, uint64_t size, uint32_t value) { (void)c; (void)at; (void)size; written[buffer] = value; }
void vkCmdCopyBuffer(void *c, uint64_t from, uint64_t to, uint32_t n, const void *r) { (void)c; (void)to; (void)n; (void)r; put32(window, 0, (uint32_t)written[from]); }
int vkMapMemory(void *d, uint64_t m, uint64_t at, uint64_t size, uint32_t f, void **data) { (void)d; (void)m; (void)at; (void)size; (void)f; *data = window; return 0; }
int vkCreateBuffer(void *d, const void *info, const void *a, uint64_t *buffer) {
    (void)d; (void)a;
    if (made == 512) made = 1;
    sizes[made] = get64(info, 24); *buffer = (uint64_t)made++; return 0;
}
void vkGetBufferMemoryRequirements(void *d, uint64_t buffer, void *out) { (void)d; put64(out, 0, sizes[buffer]); put64(out, 8, 64); put32(out, 16, 7); }
void vkDestroyBuffer(void *d, uint64_t buffer, const void *a) { (void)d; (void)buffer; (void)a; }
int vkAllocateMemory(void *d, const void *info, const void *a, uint64_t *memory) {
    (void)d; (void)a;
    uint64_t size = get64(info, 16);
    uint32_t type = get32(info, 24);
    if (type == 1) { bound[memories] = 0; *memory = (uint64_t)memories++; return 0; }
    if (type == 2) { if (size > (uint64_t)number("bar", 0) * MIB) return -2; bound[memories] = 0; *memory = (uint64_t)memories++; return 0; }
    if (used + size > (uint64_t)number("real", number("heap", 8192)) * MIB) return -2;
    if (memories == 512) memories = 1;
    used += size; bound[memories] = size; *memory = (uint64_t)memories++; return 0;
}
void vkFreeMemory(void *d, uint64_t memory, const void *a) { (void)d; (void)a; used -= bound[memory]; bound[memory] = 0; }
int vkBindBufferMemory(void *d, uint64_t b, uint64_t m, uint64_t at) { (void)d; (void)b; (void)m; return at ? -1 : 0; }
