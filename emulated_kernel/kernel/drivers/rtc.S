# drivers/rtc/lib.c, sysfs.c: the calendar, and the attributes of the machine's real-time clock.

.text

# struct rtc_time
RTC_SEC = 0
RTC_MIN = 4
RTC_HOUR = 8
RTC_MDAY = 12
RTC_MON = 16
RTC_YEAR = 20
RTC_WDAY = 24
RTC_YDAY = 28
RTC_TIME_SIZE = 40
SECONDS_PER_DAY = 86400

# The proleptic Gregorian calendar by counting from 1 March 0000, when a leap day ends the year.
FUNC rtc_time64_to_tm                   # rdi seconds since 1970, rsi struct rtc_time
    ENTER3
    mov rbx, rsi
    mov rax, rdi
    cqo
    mov ecx, SECONDS_PER_DAY
    idiv rcx
    test rdx, rdx
    jns 1f
    add rdx, rcx
    dec rax
1:
    mov r12, rax
    mov eax, edx
    xor edx, edx
    mov ecx, 3600
    div ecx
    mov [rbx + RTC_HOUR], eax
    mov eax, edx
    xor edx, edx
    mov ecx, 60
    div ecx
    mov [rbx + RTC_MIN], eax
    mov [rbx + RTC_SEC], edx
    lea rax, [r12 + 4]                  # 1 January 1970 was a Thursday
    cqo
    mov ecx, 7
    idiv rcx
    test rdx, rdx
    jns 2f
    add rdx, rcx
2:
    mov [rbx + RTC_WDAY], edx
    lea rax, [r12 + 719468]
    xor edx, edx
    mov ecx, 146097
    div rcx
    imul r13, rax, 400
    mov eax, edx                        # day of the 400 years
    mov r8d, edx
    xor edx, edx
    mov ecx, 1460
    div ecx
    mov r9d, eax
    mov eax, r8d
    xor edx, edx
    mov ecx, 36524
    div ecx
    mov r10d, eax
    mov eax, r8d
    xor edx, edx
    mov ecx, 146096
    div ecx
    mov ecx, r8d
    sub ecx, r9d
    add ecx, r10d
    sub ecx, eax
    mov eax, ecx
    xor edx, edx
    mov ecx, 365
    div ecx                             # year of the 400
    add r13, rax
    imul ecx, eax, 365
    sub r8d, ecx
    mov ecx, eax
    shr ecx, 2
    sub r8d, ecx
    xor edx, edx
    mov ecx, 100
    div ecx
    add r8d, eax                        # day of the year that began in March
    lea eax, [r8 + r8*4 + 2]
    xor edx, edx
    mov ecx, 153
    div ecx                             # month, March being 0
    mov r9d, eax
    imul eax, eax, 153
    add eax, 2
    xor edx, edx
    mov ecx, 5
    div ecx
    mov ecx, r8d
    sub ecx, eax
    inc ecx
    mov [rbx + RTC_MDAY], ecx
    add r9d, 2
    cmp r9d, 12
    jb 3f
    sub r9d, 12
    inc r13
3:
    mov [rbx + RTC_MON], r9d
    lea rax, [r13 - 1900]
    mov [rbx + RTC_YEAR], eax
    mov edi, r9d
    mov rsi, r13
    call rtc_year_days
    add eax, [rbx + RTC_MDAY]
    dec eax
    mov [rbx + RTC_YDAY], eax
    LEAVE3
ENDFUNC rtc_time64_to_tm

FUNC rtc_year_days                      # edi month, rsi year; eax days before the month
    PROLOGUE
    mov edi, edi
    movzx r8d, word ptr [rdi*2 + rtc_ydays]
    cmp edi, 2
    jb .Lout
    call rtc_is_leap
    add r8d, eax
.Lout:
    mov eax, r8d
    EPILOGUE
ENDFUNC rtc_year_days

FUNC_NOTRACE rtc_is_leap                # rsi year; eax 1 or 0
    mov rax, rsi
    xor edx, edx
    mov ecx, 400
    div rcx
    xor eax, eax
    test edx, edx
    je .Lleap
    test esi, 3
    jne .Lcommon
    mov rax, rsi
    xor edx, edx
    mov ecx, 100
    div rcx
    xor eax, eax
    test edx, edx
    je .Lcommon
.Lleap:
    inc eax
.Lcommon:
    ret
ENDFUNC rtc_is_leap

FUNC rtc_tm_to_time64                   # rdi struct rtc_time; rax seconds since 1970
    ENTER2
    mov rbx, rdi
    movsxd r12, dword ptr [rdi + RTC_YEAR]
    add r12, 1900
    mov edi, [rbx + RTC_MON]
    mov rsi, r12
    call rtc_year_days
    add eax, [rbx + RTC_MDAY]
    dec eax
    mov edi, eax
    lea rcx, [r12 - 1]                  # leap days of the years before
    imul r8, rcx, 365
    mov rax, rcx
    shr rax, 2
    add r8, rax
    mov rax, rcx
    xor edx, edx
    mov esi, 100
    div rsi
    sub r8, rax
    shr rax, 2
    add r8, rax
    lea rax, [r8 + rdi - 719162]
    imul rax, rax, SECONDS_PER_DAY
    imul ecx, [rbx + RTC_HOUR], 3600
    add rax, rcx
    imul ecx, [rbx + RTC_MIN], 60
    add rax, rcx
    mov ecx, [rbx + RTC_SEC]
    add rax, rcx
    LEAVE2
ENDFUNC rtc_tm_to_time64

# --- attributes: rdi device, rsi attribute, rdx page; rax length ----------------------------------

FUNC_STATIC name_show
    PROLOGUE
    mov rdi, rdx
    mov rsi, offset rtc_name_format
    mov rdx, offset rtc_driver_name
    mov rcx, offset rtc_driver_name
    call sprintf
    EPILOGUE
ENDFUNC name_show

FUNC_STATIC since_epoch_show
    ENTER1
    push rax
    mov rbx, rdx
    call ktime_get_real_seconds
    mov rdi, rbx
    mov rsi, offset rtc_epoch_format
    mov rdx, rax
    call sprintf
    LEAVE1
ENDFUNC since_epoch_show

FUNC_STATIC date_show
    ENTER1
    sub rsp, RTC_TIME_SIZE
    mov rbx, rdx
    call ktime_get_real_seconds
    mov rdi, rax
    mov rsi, rsp
    call rtc_time64_to_tm
    mov rdi, rbx
    mov rsi, offset rtc_date_format
    mov edx, [rsp + RTC_YEAR]
    add edx, 1900
    mov ecx, [rsp + RTC_MON]
    inc ecx
    mov r8d, [rsp + RTC_MDAY]
    call sprintf
    LEAVE1
ENDFUNC date_show

FUNC_STATIC time_show
    ENTER1
    sub rsp, RTC_TIME_SIZE
    mov rbx, rdx
    call ktime_get_real_seconds
    mov rdi, rax
    mov rsi, rsp
    call rtc_time64_to_tm
    mov rdi, rbx
    mov rsi, offset rtc_time_format
    mov edx, [rsp + RTC_HOUR]
    mov ecx, [rsp + RTC_MIN]
    mov r8d, [rsp + RTC_SEC]
    call sprintf
    LEAVE1
ENDFUNC time_show

FUNC_NOTRACE rtc_sysfs_init
    push rbp
    mov rbp, rsp
    mov rdi, offset rtc_path
    mov rsi, offset rtc_attrs
    mov rdx, offset rtc_driver_name
    call device_register_at
    pop rbp
    ret
ENDFUNC rtc_sysfs_init

.data
.balign 8
rtc_name_attr:
    .quad rtc_name_text, 0x124, name_show, 0
rtc_since_epoch_attr:
    .quad rtc_since_epoch_text, 0x124, since_epoch_show, 0
rtc_date_attr:
    .quad rtc_date_text, 0x124, date_show, 0
rtc_time_attr:
    .quad rtc_time_text, 0x124, time_show, 0
rtc_attrs:
    .quad rtc_name_attr, rtc_since_epoch_attr, rtc_date_attr, rtc_time_attr, 0
rtc_path:
    .asciz "class/rtc/rtc0"
rtc_name_text:
    .asciz "name"
rtc_since_epoch_text:
    .asciz "since_epoch"
rtc_date_text:
    .asciz "date"
rtc_time_text:
    .asciz "time"
rtc_ydays:
    .word 0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334
rtc_driver_name:
    .asciz "rtc_cmos"
rtc_name_format:
    .asciz "%s %s\n"
rtc_epoch_format:
    .asciz "%lld\n"
rtc_date_format:
    .asciz "%04d-%02d-%02d\n"
rtc_time_format:
    .asciz "%02d:%02d:%02d\n"
.text
