/* A library to be opened where it lies, which needs another that lies beside it. */
int weldfs_test_needed(void);

int weldfs_test_answer(void) {
    return 40 + weldfs_test_needed();
}
