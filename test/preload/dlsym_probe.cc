// Says what dlsym answers, for a comparison with and without the preload. Arguments:
//   default:NAME  self:NAME  next:NAME  PATH:NAME   (PATH is opened with RTLD_LOCAL)
// One line each: the file that holds the answer and the offset in it, or the message; asked twice;
// then what dlerror says after a look-up that succeeds while a message is pending.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <string>

static std::string describe(void* found) {
  if (found == nullptr) {
    const char* message = dlerror();
    return std::string("null: ") + (message != nullptr ? message : "no message");
  }
  Dl_info info{};
  if (dladdr(found, &info) == 0) return "unknown";
  const char* slash = strrchr(info.dli_fname, '/');
  const long offset = static_cast<char*>(found) - static_cast<char*>(info.dli_fbase);
  return std::string(slash != nullptr ? slash + 1 : info.dli_fname) + "+" + std::to_string(offset);
}

int main(int count, char** arguments) {
  for (int i = 1; i < count; ++i) {
    const std::string argument = arguments[i];
    const size_t colon = argument.rfind(':');
    const std::string where = argument.substr(0, colon);
    const std::string name = argument.substr(colon + 1);
    void* handle = RTLD_DEFAULT;
    if (where == "next")
      handle = RTLD_NEXT;
    else if (where == "self")
      handle = dlopen(nullptr, RTLD_NOW);
    else if (where != "default")
      handle = dlopen(where.c_str(), RTLD_NOW | RTLD_LOCAL);
    void* first = dlsym(handle, name.c_str());
    const std::string text = describe(first);
    const bool same = dlsym(handle, name.c_str()) == first;
    dlerror();
    (void)dlsym(RTLD_DEFAULT, "no_such_name");  // leaves a message
    (void)dlsym(handle, name.c_str());
    const char* pending = dlerror();
    printf("%s %s %s; %s\n", name.c_str(), text.c_str(), same ? "twice" : "unstable",
           first == nullptr || pending == nullptr ? "clean" : pending);
  }
}
