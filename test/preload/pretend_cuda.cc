// Bears the name of the CUDA driver, for tests of what is said only where CUDA was used.
extern "C" [[gnu::visibility("default")]] int pretend_cuda() { return 0; }
