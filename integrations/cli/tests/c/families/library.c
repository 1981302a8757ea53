/* A library to be opened where it lies. */
int weldfs_test_answer(void) {
    return 42;
}
