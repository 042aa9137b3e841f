/* NVIDIA's management library without a card. NVML="key=value;..." says what it tells. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long setting(const char *key, long otherwise) {
    const char *text = getenv("NVML");
    char name[64];
    snprintf(name, sizeof name, "%s=", key);
    const char *found = text ? strstr(text, name) : NULL;
    return found ? atol(found + strlen(name)) : otherwise;
}

int nvmlInit_v2(void) {
    if (setting("hang", 0)) for (;;) sleep(60);
    if (setting("crash", 0)) abort();
    return (int)setting("init", 0);
}
int nvmlDeviceGetCount_v2(unsigned *count) { *count = (unsigned)setting("count", 1); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) { *handle = (void *)(uintptr_t)(index + 1); return 0; }
int nvmlDeviceGetPciInfo_v3(void *handle, char *info) {
    snprintf(info + 36, 32, "00000000:%02X:00.0", (unsigned)(uintptr_t)handle); return 0;
}
int nvmlDeviceGetMemoryInfo_v2(void *handle, uint64_t *info) {
    static int asked;
    (void)handle;
    if ((uint32_t)info[0] != 0x2000028) return 25;
    info[1] = 25757220864; info[2] = 500 << 20; info[4] = 0;
    info[3] = ((uint64_t)24000 << 20) - (asked++ ? (uint64_t)setting("context", 300) << 20 : 0);
    return (int)setting("memory", 0);
}
int nvmlDeviceGetDriverModel_v2(void *handle, int *now, int *later) {
    (void)handle; *now = *later = (int)setting("model", 0); return setting("model", -1) < 0 ? 3 : 0;
}
int nvmlDeviceGetDisplayActive(void *handle, int *on) { (void)handle; *on = (int)setting("display", 0); return 0; }
int nvmlDeviceGetMigMode(void *handle, int *now, int *later) {
    (void)handle; *now = *later = (int)setting("mig", 0); return setting("mig", -1) < 0 ? 3 : 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *count, char *rows) {
    (void)handle;
    long mib = setting("others", 0);
    uint64_t bytes = mib < 0 ? ~(uint64_t)0 : (uint64_t)mib << 20;
    *count = mib ? 1 : 0;
    if (mib) { uint32_t pid = 1; memcpy(rows, &pid, 4); memcpy(rows + 8, &bytes, 8); }
    return 0;
}
int nvmlSystemGetDriverVersion(char *text, unsigned length) { snprintf(text, length, "575.51"); return 0; }
