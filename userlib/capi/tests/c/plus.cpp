// The header in C++.
#include <weldfs.h>
#include <cstdio>
#include <memory>

struct Detach {
    void operator()(weldfs_client *client) const { weldfs_detach(client); }
};

int main(int argc, char **argv) {
    weldfs_client *raw = nullptr;
    if (argc != 2 || weldfs_attach(argv[1], nullptr, &raw) < 0) return 1;
    std::unique_ptr<weldfs_client, Detach> client(raw);
    weldfs_info info;
    if (weldfs_get_info(client.get(), &info) < 0) return 1;
    std::printf("session %llu\n", static_cast<unsigned long long>(info.session));
    return 0;
}
