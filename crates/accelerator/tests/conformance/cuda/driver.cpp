// CUDA driver and NVRTC in software, so that what uses them is tested without a card: passes are compiled for the processor,
// and run one invocation after the other. It has the functions that crates/accelerator/src/cuda uses, and no others.
//
// A stream is a thread, which carries out commands in their order while the caller goes on: memory that is used too early has
// wrong contents. SOFTWARE_CUDA_LAUNCHES=N lets the launch after N others fail, and all calls after it, as a lost card does.
// SOFTWARE_CUDA_BYTES=N is the memory of the card.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_READY = 600, LAUNCH_FAILED = 719 };

static std::atomic<int> failure{SUCCESS};
static std::atomic<long> launches{0};
static std::mutex memory_lock;
static std::map<uintptr_t, size_t> memory;

static long setting(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text ? atol(text) : otherwise;
}

static size_t used() {
    size_t sum = 0;
    for (auto &entry : memory) {
        sum += entry.second;
    }
    return sum;
}

static size_t total() { return setting("SOFTWARE_CUDA_BYTES", 1L << 30); }

struct Stream {
    std::mutex lock;
    std::condition_variable changed;
    std::deque<std::function<void()>> commands;
    bool is_busy = false, is_closed = false;
    std::thread thread{[this] { work(); }};

    void work() {
        std::unique_lock<std::mutex> guard(lock);
        for (;;) {
            changed.wait(guard, [this] { return is_closed || !commands.empty(); });
            if (commands.empty()) {
                return;
            }
            auto command = std::move(commands.front());
            commands.pop_front();
            is_busy = true;
            guard.unlock();
            command();
            guard.lock();
            is_busy = false;
            changed.notify_all();
        }
    }

    void add(std::function<void()> command) {
        std::lock_guard<std::mutex> guard(lock);
        commands.push_back(std::move(command));
        changed.notify_all();
    }

    void wait() {
        std::unique_lock<std::mutex> guard(lock);
        changed.wait(guard, [this] { return commands.empty() && !is_busy; });
    }

    ~Stream() {
        {
            std::lock_guard<std::mutex> guard(lock);
            is_closed = true;
        }
        changed.notify_all();
        thread.join();
    }
};

typedef void Run(void *pass, const void *arguments, unsigned columns, unsigned rows, unsigned group);

struct Module {
    void *library;
};

// A pass, and the function of its library that runs it for all invocations.
struct Pass {
    void *pass;
    Run *run;
};

extern "C" {

int cuInit(unsigned) { return SUCCESS; }
int cuDeviceGetCount(int *count) { return *count = 1, SUCCESS; }
int cuDeviceGet(int *device, int number) { return *device = number, number == 0 ? SUCCESS : INVALID_VALUE; }
int cuDeviceGetName(char *name, int length, int) { return snprintf(name, length, "processor"), SUCCESS; }
int cuDeviceTotalMem_v2(size_t *bytes, int) { return *bytes = total(), SUCCESS; }
int cuDeviceGetAttribute(int *value, int, int) { return *value = 7, SUCCESS; }
int cuDevicePrimaryCtxRetain(void **context, int) { return *context = &failure, SUCCESS; }
int cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }
int cuCtxSetCurrent(void *) { return failure; }

int cuMemGetInfo_v2(size_t *free, size_t *all) {
    std::lock_guard<std::mutex> guard(memory_lock);
    *all = total();
    *free = *all - used();
    return failure;
}

int cuMemAlloc_v2(uintptr_t *address, size_t bytes) {
    std::lock_guard<std::mutex> guard(memory_lock);
    if (used() + bytes > total()) {
        return OUT_OF_MEMORY;
    }
    *address = (uintptr_t)malloc(bytes);
    memory[*address] = bytes;
    return failure;
}

int cuMemFree_v2(uintptr_t address) {
    std::lock_guard<std::mutex> guard(memory_lock);
    memory.erase(address);
    free((void *)address);
    return failure;
}

int cuMemHostAlloc(void **address, size_t bytes, unsigned) {
    *address = malloc(bytes);
    return *address ? (int)failure : OUT_OF_MEMORY;
}

int cuMemFreeHost(void *address) { return free(address), failure; }
int cuMemsetD8_v2(uintptr_t address, unsigned char value, size_t bytes) {
    return memset((void *)address, value, bytes), failure;
}
int cuMemcpyHtoD_v2(uintptr_t to, const void *from, size_t bytes) { return memcpy((void *)to, from, bytes), failure; }

int cuMemcpyAsync(uintptr_t to, uintptr_t from, size_t bytes, Stream *stream) {
    stream->add([=] { memcpy((void *)to, (const void *)from, bytes); });
    return failure;
}

int cuStreamCreate(Stream **stream, unsigned) { return *stream = new Stream, failure; }
int cuStreamDestroy_v2(Stream *stream) { return delete stream, failure; }
int cuStreamSynchronize(Stream *stream) { return stream->wait(), failure; }

int cuStreamQuery(Stream *stream) {
    if (failure) {
        return failure;
    }
    std::lock_guard<std::mutex> guard(stream->lock);
    return stream->commands.empty() && !stream->is_busy ? SUCCESS : NOT_READY;
}

int cuLaunchHostFunc(Stream *stream, void (*function)(void *), void *argument) {
    stream->add([=] { function(argument); });
    return failure;
}

// The image is the path of a library.
int cuModuleLoadData(Module **module, const void *image) {
    void *library = dlopen((const char *)image, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return INVALID_VALUE;
    }
    *module = new Module{library};
    return failure;
}

int cuModuleUnload(Module *module) { return delete module, failure; }

int cuModuleGetFunction(Pass **function, Module *module, const char *name) {
    *function = new Pass{dlsym(module->library, name), (Run *)dlsym(module->library, "run")};
    return (*function)->pass && (*function)->run ? (int)failure : INVALID_VALUE;
}

// A pass has one argument, which is copied: 8 addresses and 16 numbers.
int cuLaunchKernel(Pass *function, unsigned columns, unsigned rows, unsigned, unsigned group, unsigned, unsigned, unsigned,
                   Stream *stream, void **arguments, void **) {
    struct { uint64_t words[16]; } argument;
    memcpy(&argument, arguments[0], sizeof argument);
    stream->add([=] {
        if (launches++ >= setting("SOFTWARE_CUDA_LAUNCHES", 1L << 60)) {
            failure = LAUNCH_FAILED;
        }
        if (!failure) {
            function->run(function->pass, &argument, columns, rows, group);
        }
    });
    return failure;
}

int cuGetErrorString(int error, const char **text) {
    *text = error == LAUNCH_FAILED ? "unspecified launch failure" : "an error";
    return SUCCESS;
}
int cuGetErrorName(int, const char **text) { return *text = "ERROR", SUCCESS; }

// ---- NVRTC ------------------------------------------------------------------------------------------

struct Program {
    std::string source, library, log;
};

static const char before[] = R"(
#include <math.h>
#define __global__
#define __device__
struct Dimensions { unsigned x, y; };
static thread_local Dimensions gridDim, blockDim, blockIdx, threadIdx;
static unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
#line 1
)";

static const char behind[] = R"(
extern "C" void run(void (*pass)(Arguments), const Arguments *arguments, unsigned columns, unsigned rows, unsigned group) {
    gridDim = {columns, rows};
    blockDim = {group, 1};
    for (blockIdx.y = 0; blockIdx.y < rows; blockIdx.y++)
        for (blockIdx.x = 0; blockIdx.x < columns; blockIdx.x++)
            for (threadIdx.x = 0; threadIdx.x < group; threadIdx.x++)
                pass(*arguments);
}
)";

int nvrtcCreateProgram(Program **program, const char *source, const char *, int, const char **, const char **) {
    return *program = new Program{std::string(before) + source + behind, "", ""}, 0;
}

int nvrtcCompileProgram(Program *program, int, const char **) {
    static std::atomic<int> number{0};
    std::string folder = getenv("SOFTWARE_CUDA_FOLDER");
    std::string base = folder + "/" + std::to_string(getpid()) + "-" + std::to_string(number++);
    std::ofstream(base + ".cpp") << program->source;
    program->library = base + ".so";
    std::string command = "c++ -O2 -shared -fPIC -o " + program->library + " " + base + ".cpp 2> " + base + ".log";
    int status = system(command.c_str());
    std::ifstream log(base + ".log");
    program->log.assign(std::istreambuf_iterator<char>(log), {});
    return status ? 6 : 0;
}

int nvrtcGetProgramLogSize(Program *program, size_t *bytes) { return *bytes = program->log.size() + 1, 0; }
int nvrtcGetProgramLog(Program *program, char *log) { return strcpy(log, program->log.c_str()), 0; }
int nvrtcGetPTXSize(Program *program, size_t *bytes) { return *bytes = program->library.size() + 1, 0; }
int nvrtcGetPTX(Program *program, char *text) { return strcpy(text, program->library.c_str()), 0; }
int nvrtcDestroyProgram(Program **program) { return delete *program, *program = nullptr, 0; }
}
