/* The options that a program built with AddressSanitizer may set for itself. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "detect_stack_use_after_return=0"; }
